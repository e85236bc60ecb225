package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"sync"
)

// bare is plain interpreters side by side that call one workload's function when told to.
type bare struct{ procs []*bareProcess }

type bareProcess struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr bytes.Buffer
}

// startBare starts n processes on the measured device and returns when all are warm. The
// caller closes it, also after an error.
func (b *bench) startBare(ctx context.Context, workload string, n int) (*bare, error) {
	p := &bare{}
	env := environ(b.around[n], b.env(workload, b.on.Framework))
	for i := range n {
		one := &bareProcess{cmd: b.command(ctx, env, "loop", workload, strconv.Itoa(i), strconv.Itoa(n))}
		one.cmd.Stderr = &one.stderr
		out, err := one.cmd.StdoutPipe()
		if err == nil {
			one.out = json.NewDecoder(out)
			one.in, err = one.cmd.StdinPipe()
		}
		if err == nil {
			err = one.cmd.Start()
		}
		if err != nil {
			return p, fmt.Errorf("start a bare process: %w", err)
		}
		p.procs = append(p.procs, one)
	}
	for _, one := range p.procs {
		var ready string
		if err := one.out.Decode(&ready); err != nil {
			return p, one.died(ctx, err)
		}
	}
	return p, nil
}

// piece lets every process call the function so many times.
func (p *bare) piece(ctx context.Context, items int) (sample, error) {
	for _, one := range p.procs {
		if _, err := fmt.Fprintln(one.in, items); err != nil {
			return sample{}, one.died(ctx, err)
		}
	}
	errs := make([]error, len(p.procs))
	stamps := make([][]stamp, len(p.procs))
	var all sync.WaitGroup
	for i, one := range p.procs {
		all.Go(func() {
			var got struct{ Began, Ended []int64 }
			if err := one.out.Decode(&got); err != nil {
				errs[i] = one.died(ctx, err)
				return
			}
			for n := range got.Ended {
				stamps[i] = append(stamps[i], stamp{Slot: strconv.Itoa(i), Began: got.Began[n], Ended: got.Ended[n]})
			}
		})
	}
	all.Wait()
	return sampleOf(slices.Concat(stamps...), len(p.procs), 0), errors.Join(errs...)
}

func (p *bare) close() {
	for _, one := range p.procs {
		_ = one.in.Close() // the loop ends with its input
	}
	for _, one := range p.procs {
		_ = one.cmd.Wait()
	}
}

// died says how a process ended that should have answered.
func (p *bareProcess) died(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_ = p.in.Close()
	if ended := p.cmd.Wait(); ended != nil {
		err = ended
	}
	return fmt.Errorf("a bare process ended: %w: %s", err, lastLine(p.stderr.String()))
}
