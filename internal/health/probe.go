package health

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
)

// probeLimit bounds a probe. The first context on a host with many GPUs takes seconds.
const probeLimit = 30 * time.Second

// Probe is the finding of a throw-away process that made a context and copied 1 MiB.
type Probe struct {
	Device string `json:"device"`
	OK     bool   `json:"ok"`
	// Seconds is how long that took. Context is the memory of the context, Free and Total
	// are the device's as CUDA tells them, in bytes; 0 means unknown.
	Seconds float64 `json:"seconds"`
	Context uint64  `json:"context,omitempty"`
	// Blind: the driver lists processes, but not what this one holds.
	Blind bool   `json:"blind,omitempty"`
	Free  uint64 `json:"free,omitempty"`
	Total uint64 `json:"total,omitempty"`
	// Code is the CUDA error number of the failed Call, Text its description.
	Code int    `json:"code,omitempty"`
	Call string `json:"call,omitempty"`
	Text string `json:"text,omitempty"`
	// Untried says why nothing is known of the device.
	Untried string `json:"untried,omitempty"`
}

// Sick reports whether the device failed. One that could not be tried did not.
func (p Probe) Sick() bool { return !p.OK && p.Untried == "" }

// String says what the probe found, in one line.
func (p Probe) String() string {
	switch {
	case p.Untried != "":
		return "could not be tried: " + p.Untried
	case p.OK && p.Code != 0:
		return "answers, and others hold all of its memory"
	case p.OK && p.Context > 0:
		return fmt.Sprintf("works; a context takes %s and %.2f s", gpumux.Size(p.Context), p.Seconds)
	case p.OK && p.Blind:
		return fmt.Sprintf("works; a context takes %.2f s, and the driver does not tell what a process holds", p.Seconds)
	case p.OK:
		return fmt.Sprintf("works; a context takes %.2f s", p.Seconds)
	case p.Code != 0:
		return fmt.Sprintf("%s failed: %s (CUDA error %d)", p.Call, p.Text, p.Code)
	}
	return p.Text
}

func (p Probe) Hint() string {
	if p.Code != 0 {
		if hint := diagnosis.Diagnose(diagnosis.Evidence{Code: p.Code, Message: p.Text}).Fault.Hint; hint != "" {
			return hint
		}
	}
	return "see `nvidia-smi` and the kernel's log for NVRM: Xid lines"
}

// Prober starts probes. Its methods may be called from any goroutine.
type Prober struct {
	// Python starts them. Default python3.
	Python string
	// Home is their HOME. Default: the worker's.
	Home string
	// Env is added to the environment of a process on the device.
	Env map[string]string
	// Limit is how long a device may take to answer. Default 30 s.
	Limit time.Duration
}

//go:embed probe.py
var script string

// Try probes a device, within the limit and a little more. A silent device is sick.
func (p Prober) Try(ctx context.Context, uuid string) Probe {
	limit := cmp.Or(p.Limit, probeLimit)
	env := launch.Slot{Group: uuid, Sharing: p.Env}.Variables()
	// A process that hangs in the driver may not even end when it is killed.
	s := slot.New(slot.Options{Name: "probe", Device: uuid, Home: p.Home, Grace: time.Second, Patience: limit / 4, Env: env})
	defer func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Stop(now) // it ends by itself
	}()
	work := calls.Single{Value: []byte("null")}
	err := s.Run(ctx, launch.Task{Name: "probe", Command: []string{cmp.Or(p.Python, "python3"), "-I", "-S", "-c", script}}, slot.Call{
		Call: calls.Call{Timeout: limit}, Work: &work,
	})
	done := work.Result
	found := Probe{}
	var fault *gpumux.Fault
	switch {
	case errors.As(err, &fault) && fault.Kind == gpumux.FaultTimeout:
		return Probe{Device: uuid, Seconds: limit.Seconds(), Text: fmt.Sprintf("CUDA did not answer within %s", limit)}
	case errors.As(err, &fault) && fault.Op == "run" && fault.Kind == gpumux.FaultCrash:
		found.Text = "the probe's process died: " + fault.Message
	case err != nil:
		found.Untried = err.Error()
	case done.Fault != nil:
		found.Untried = done.Fault.Message
	case json.Unmarshal(done.Value, &found) != nil:
		found = Probe{Untried: "the probe printed something else: " + string(done.Value)}
	}
	found.Device = uuid
	return found
}
