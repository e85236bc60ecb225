package health

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/gpumux/gpumux/gpu"
)

// Open lists this machine's devices. It asks CUDA, by this Python, where a user's
// CUDA_VISIBLE_DEVICES means CUDA's order. Default: python3.
func Open(ctx context.Context, python string) (*gpu.Inventory, error) {
	return gpu.Open(ctx, gpu.Options{CUDAOrder: func(ctx context.Context) ([]string, error) { return visible(ctx, python) }})
}

// visible are the UUIDs of the GPUs that CUDA shows to a process with this environment.
func visible(ctx context.Context, python string) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeLimit, fmt.Errorf("it did not answer within %s", probeLimit))
	defer cancel()
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() { // a process that hangs in the driver may not even end when it is killed
		cmd := exec.CommandContext(ctx, cmp.Or(python, "python3"), "-I", "-S", "-c", script, "order")
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if lines := strings.Split(strings.TrimSpace(said.String()), "\n"); err != nil && lines[0] != "" {
			err = errors.New(lines[len(lines)-1])
		}
		answered <- answer{string(out), err}
	}()
	select {
	case a := <-answered:
		return strings.Fields(a.text), a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
