package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpumux/gpumux/gpu"
)

// probe is what `workloads.py probe` says of an interpreter.
type probe struct {
	Python    string            `json:"python"`
	Framework string            `json:"framework"`
	Version   string            `json:"version"`
	Device    string            `json:"device"`
	GPU       bool              `json:"gpu"`
	Lacking   map[string]string `json:"lacking"`
}

// lacking lists what is not there and why.
func (p probe) lacking() string {
	parts := []string{}
	for _, name := range slices.Sorted(maps.Keys(p.Lacking)) {
		parts = append(parts, name+": "+p.Lacking[name])
	}
	return strings.Join(parts, ", ")
}

// findPython follows a name to the interpreter itself, as slots do: a version manager's script would cost time at every start.
func findPython(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, name, "-c", "import sys; print(sys.executable)").Output()
	path := strings.TrimSpace(string(out))
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil || path == "" {
		return "", &Lacking{fmt.Sprintf("%s does not start: %v; install Python 3, or give another with --python", name, withStderr(err))}
	}
	return path, nil
}

// probeOn asks the interpreter what it has on a device.
func (b *bench) probeOn(ctx context.Context, d gpu.Device) (probe, error) {
	var p probe
	only := map[string]string{"BENCH_FRAMEWORK": b.o.Framework}
	err := b.ask(ctx, append(os.Environ(), environ(frameworkEnv(), deviceEnv(d), only)...), &p, "probe")
	return p, err
}

// ask runs workloads.py to its end and reads the JSON that it prints.
func (b *bench) ask(ctx context.Context, env []string, answer any, args ...string) error {
	cmd := b.command(ctx, env, args...)
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return &Lacking{fmt.Sprintf("%s %s %s: %v", b.interpreter, taskFile, args[0], withStderr(err))}
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("read what %s %s printed: %w", taskFile, args[0], err)
	}
	return nil
}

// command makes a Python process that ends with ctx, its children included.
func (b *bench) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.interpreter, append([]string{b.task}, args...)...)
	cmd.Dir, cmd.Env = b.o.Folder, env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	return cmd
}

// tail keeps the end of what a process prints.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	n, err := t.Buffer.Write(p)
	if over := t.Len() - most; over > 0 {
		_, _ = io.CopyN(io.Discard, &t.Buffer, int64(over))
	}
	return n, err
}

// last is the last line, which is the message of a traceback.
func (t *tail) last() string { return lastLine(t.String()) }

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// withStderr adds the last line that a failed command printed.
func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, lastLine(string(exit.Stderr)))
	}
	return err
}
