package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"
)

// bare is plain interpreters side by side that call one workload's function when they are told to.
type bare struct {
	procs []*bareProcess
	// start is how long it took until every one had made its first call.
	start time.Duration
}

type bareProcess struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr *tail
}

// startBare starts n processes on a device and returns when all are warm. The caller closes it, also after an error.
func (b *bench) startBare(ctx context.Context, t *target, w workload, n int) (*bare, error) {
	began := time.Now()
	p := &bare{}
	env := environ(b.around[n], w.env(t.probe.Framework, 1))
	for i := range n {
		cmd := b.command(ctx, env, "loop", w.name, strconv.Itoa(i), strconv.Itoa(n))
		one := &bareProcess{cmd: cmd, stderr: &tail{}}
		cmd.Stderr = one.stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return p, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return p, err
		}
		one.in, one.out = in, json.NewDecoder(out)
		if err := cmd.Start(); err != nil {
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
	p.start = time.Since(began)
	return p, nil
}

// round lets every process call the function so many times.
func (p *bare) round(ctx context.Context, perProcess int) (sample, error) {
	for _, one := range p.procs {
		if _, err := fmt.Fprintln(one.in, perProcess); err != nil {
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
				stamps[i] = append(stamps[i], stamp{strconv.Itoa(i), got.Began[n], got.Ended[n]})
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	return sampleOf(slices.Concat(stamps...), len(p.procs), 0), nil
}

// close ends the processes.
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
	return fmt.Errorf("a bare process ended: %w: %s", err, p.stderr.last())
}
