// Package diagnosis turns evidence, an exception or a death with its last output, into a
// fault with its kind, sizes and hint. It asks no system and keeps no state.
package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/wire"
)

// ClosedWire says how a process broke the protocol when its wire ends while it lives.
const ClosedWire = "the task process closed its wire and went on, which is not the task's own to close"

// WireLost is the exit status of the Python runtime without a wire; see docs/wire.md.
const WireLost = 64

// Evidence is all that is known about a failed item. Zero means "not seen".
type Evidence struct {
	// Class and Message are the exception that ended the item; Class is empty if there was
	// none. With TimedOut, Message says which limit was passed.
	Class, Message string
	// Chain holds what that exception was raised from or while handling, nearest first.
	Chain []wire.Cause
	// Item is the item that raised, as JSON; nil if that is not known.
	Item []byte
	// Code is the CUDA error number that the exception carries.
	Code int
	// Loading says that the process had not yet finished importing the task.
	Loading bool
	// Target is the Python function that the task names, as in the worker's file.
	Target string
	// Silent is the program, if it ended before its first message.
	Silent string
	// Command: the task is a plain program, which fails with a non-zero exit status.
	Command bool
	// Exited and the fields below describe the death of the process by the system's report.
	Exited     bool
	ExitCode   int
	Signal     syscall.Signal
	CoreDumped bool
	// OOMKills is the increase of the cgroup's oom_kill counter while the item ran.
	OOMKills int
	// OverBudget says that the memory watch ended the process. Peak and Budget are in bytes;
	// Lent says that the budget included that of idle neighbours.
	OverBudget bool
	// HostLeft is the host's free bytes when the watch ended the process for them, else 0.
	HostLeft int64
	// Foreign is a GPU other than Device on which the process held ForeignHeld bytes.
	Foreign, Device string
	ForeignHeld     int64
	Lent            bool
	Peak, Budget    int64
	TimedOut        bool
	Canceled        bool
	// Recycled says why the process was ended for a reason outside of it.
	Recycled string
	// Protocol says how the process broke the protocol, or why output is no result.
	Protocol string
	Tail     string
	// MPS says that the process shared an MPS server with its neighbours.
	MPS bool
	// OnCPU says that the slot's device is the CPU, whose memory is the host's.
	OnCPU bool
	// Batch is the most items that the task takes in one call, Concurrent how many it runs
	// at the same time; 0: it takes single items.
	Batch, Concurrent int
}

func Raised(r wire.Raised) *Evidence {
	return &Evidence{Class: r.Class, Message: r.Message, Chain: r.Chain, Code: r.Code}
}

// Diagnosis is the fault and its consequences for process, device and neighbours.
type Diagnosis struct {
	// Fault lacks its place. Budget is the framework's own cap if the slot has none.
	Fault gpumux.Fault
	// Poisoned: the process must not run another item, whether it lives or not.
	Poisoned bool
	// Device says that the device itself is suspect: check its health before the next item.
	Device bool
	// MPSWide: every client of the same MPS server is ruined, idle ones included.
	MPSWide bool
	// Blameless: nothing that the item did explains the fault.
	Blameless bool
	// either: on the CPU the fault is one of the host's memory. hidden: it is the CPU's.
	either, hidden bool
}

// Diagnose classifies a failed item. A failure without a rule is the user's exception, or
// a crash. It is not for successful items, which may print that memory ran out and go on.
func Diagnose(e Evidence) Diagnosis {
	d := judge(e)
	if d.either && e.OnCPU {
		d.Fault.Kind, d.Fault.Hint = gpumux.FaultHostOOM, ""
	}
	if d.hidden && e.OnCPU {
		// No device is unwell, and a process that raised it goes on.
		d.Fault.Hint, d.Device, d.Poisoned = hintHidden, false, false
		if !e.Exited || e.Command {
			d.Fault.Kind = gpumux.FaultTaskError
		}
	}
	d.Fault.Budget = cmp.Or(e.Budget, d.Fault.Budget)
	d.Fault.Peak = e.Peak
	d.Fault.Exit = exitText(e)
	d.MPSWide = d.MPSWide && e.MPS
	if e.Exited || e.Protocol != "" || d.Fault.Kind == gpumux.FaultTimeout || d.Fault.Kind == gpumux.FaultCanceled || d.Fault.Kind == gpumux.FaultBudget {
		d.Poisoned = true
	}
	if e.Loading && d.Fault.Kind == gpumux.FaultTaskError {
		d.Fault.Kind = gpumux.FaultBadInput
	}
	if d.Fault.Hint == "" {
		d.Fault.Hint = hint(e, d)
	}
	return d
}

// judge uses the surest evidence first: what the worker did to the process, then the
// exception, then the output of the dead process, last its exit status.
func judge(e Evidence) Diagnosis {
	raised := e.exceptions()
	switch {
	case e.Canceled:
		return plain(gpumux.FaultCanceled, "the map was cancelled while the item ran")
	case e.Recycled != "":
		d := plain(gpumux.FaultCrash, e.Recycled)
		d.Poisoned, d.Blameless = true, true
		return d
	case e.HostLeft > 0:
		return plain(gpumux.FaultHostOOM, fmt.Sprintf("the host had %s of memory left, and the task process and its children held %s, the most of all",
			gpumux.Size(e.HostLeft), gpumux.Size(e.Peak)))
	case e.Foreign != "":
		return plain(gpumux.FaultBadInput, fmt.Sprintf("the task process and its children held %s on GPU %s, which is not the device of its slot, %s",
			gpumux.Size(e.ForeignHeld), e.Foreign, e.Device))
	case e.OverBudget:
		if f, ok := match(raised, e.Code, e.admits); ok && (f.rule.poisoned || f.rule.kind == gpumux.FaultDeviceOOM) {
			return f.diagnosis()
		}
		whose := "the slot's budget"
		if e.Lent {
			whose = "the budget of all slots of the device"
		}
		return plain(gpumux.FaultBudget, fmt.Sprintf("the task process and its children held %s, over %s of %s",
			gpumux.Size(e.Peak), whose, gpumux.Size(e.Budget)))
	case e.TimedOut:
		d := plain(gpumux.FaultTimeout, cmp.Or(oneLine(e.Message), "the item ran longer than it may"))
		f, ok := match(e.printed(), 0, e.admits)
		d.Device = ok && f.rule.device
		return d
	case len(raised) > 0:
		return fromException(e, raised)
	case e.Exited:
		return fromDeath(e)
	}
	return plain(gpumux.FaultCrash, cmp.Or(oneLine(e.Protocol), "the task process gave neither a result nor a reason"))
}

func fromException(e Evidence, raised []subject) Diagnosis {
	f, ok := match(raised, e.Code, e.admits)
	if ok && (f.rule.weak || f.rule.kind == gpumux.FaultDeviceOOM) {
		// The framework may only know that some call failed, and a ruined context can look like
		// a lack of memory. The output of CUDA or NCCL says why.
		if sure, found := match(e.printed(), 0, func(r *rule) bool {
			return e.admits(r) && !r.weak && (r.poisoned || f.rule.weak && r.kind.Memory())
		}); found {
			sharper := sure.diagnosis()
			sharper.Fault.Class, sharper.Fault.Message = e.Class, oneLine(e.Message)+": "+sharper.Fault.Message
			return sharper
		}
	}
	if ok {
		d := f.diagnosis()
		if f.rule.child != nil {
			if words := f.rule.child().FindStringSubmatch(e.Tail); words != nil {
				d.Fault.Message += ": " + oneLine(words[1])
			}
		}
		return d
	}
	d := plain(gpumux.FaultTaskError, cmp.Or(oneLine(e.Message), e.Class))
	d.Fault.Class = e.Class
	// An exception may hide what ruined the device's context; the next item would fail.
	_, d.Poisoned = match(e.printed(), 0, func(r *rule) bool { return e.admits(r) && r.poisoned && !r.weak })
	return d
}

func fromDeath(e Evidence) Diagnosis {
	sig, shell := deadlySignal(e)
	if sig == syscall.SIGKILL && e.OOMKills > 0 {
		return plain(gpumux.FaultHostOOM, "the kernel killed the task process because its host memory ran out")
	}
	ended := sig != 0 || e.ExitCode != 0
	if ended {
		// A process that ended well may have handled what it printed.
		if f, ok := match(e.printed(), 0, e.admits); ok {
			return f.diagnosis()
		}
	}
	if e.OOMKills > 0 {
		return plain(gpumux.FaultHostOOM, "the kernel killed a child of the task process because its host memory ran out")
	}
	message, class := lastMessage(e.Tail)
	var d Diagnosis
	switch {
	case e.Command && !ended:
		return plain(gpumux.FaultTaskError, cmp.Or(oneLine(e.Protocol), "the command ended well but gave no result"))
	case e.Command && sig == 0:
		d = plain(gpumux.FaultTaskError, cmp.Or(message, lastLine(e.Tail), "the command ended with "+exitText(e)+" and said nothing"))
	case sig != 0 && !shell:
		d = plain(gpumux.FaultCrash, "the task process ended by "+exitText(e)+detail(message))
	case e.Silent != "":
		d = plain(gpumux.FaultCrash, fmt.Sprintf("%s ended with %s before it began to import the task%s", e.Silent, exitText(e),
			detail(cmp.Or(message, lastLine(e.Tail)))))
	case e.Loading && !shell && e.ExitCode != WireLost:
		module, _, _ := strings.Cut(e.Target, ":")
		module = cmp.Or(module, "the task's module")
		d = plain(gpumux.FaultCrash, fmt.Sprintf("the import of %s ended the process with %s%s", module, exitText(e),
			detail(cmp.Or(message, lastLine(e.Tail), e.Protocol))))
	case !ended:
		d = plain(gpumux.FaultCrash, "the task process ended itself with exit status 0 in the middle of an item"+detail(e.Protocol))
	default:
		d = plain(gpumux.FaultCrash, "the task process ended with "+exitText(e)+detail(cmp.Or(message, lastLine(e.Tail), e.Protocol)))
	}
	d.Fault.Class = class
	return d
}

func plain(kind gpumux.FaultKind, message string) Diagnosis {
	return Diagnosis{Fault: gpumux.Fault{Kind: kind, Message: message}}
}

const (
	// The rules read readMost bytes of an exception's message and readAll of a chain, so a
	// diagnosis costs less than an item. They read both ends, where frameworks say why.
	readMost, readAll = 4 << 10, 16 << 10
	// readChain is how many links of a chain are read, readClass how many bytes of a class.
	readChain, readClass = 32, 256
)

// exceptions are the exception and its chain, outermost first, as far as they are read.
func (e Evidence) exceptions() []subject {
	chain := e.Chain[:min(len(e.Chain), readChain)]
	limit := min(readMost, readAll/(len(chain)+1))
	if e.Class != "" || e.Message != "" || e.Code != 0 {
		chain = slices.Insert(slices.Clone(chain), 0, wire.Cause{Class: e.Class, Message: e.Message})
	}
	var out []subject
	for _, x := range chain {
		out = append(out, subject{class: ends(x.Class, readClass), text: ends(x.Message, limit), mute: !speaks(x.Class), item: e.Item})
	}
	return out
}

// ends is a text that is longer than limit without its middle.
func ends(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit/2], "") + "\n" + strings.ToValidUTF8(text[len(text)-limit/2:], "")
}
