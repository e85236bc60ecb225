package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// bareProcesses is plain interpreters side by side that call a workload's function in a loop.
type bareProcesses struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr bytes.Buffer
}

// command makes a Python process that ends with ctx, its children included.
func (b *bench) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.python, append([]string{b.file}, args...)...)
	cmd.Env, cmd.SysProcAttr = env, &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	return cmd
}

// startBare starts processes on the measured device and returns when all are warm.
func (b *bench) startBare(ctx context.Context, workload string, clients int) (*bareProcesses, error) {
	var env []string
	for _, part := range []map[string]string{b.environs[clients], b.env(workload)} {
		for name, value := range part {
			env = append(env, name+"="+value)
		}
	}
	p := &bareProcesses{cmd: b.command(ctx, env, "bare", workload, strconv.Itoa(clients))}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.out = json.NewDecoder(out)
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start bare processes: %w", err)
	}
	_, err = p.piece(ctx, 1)
	return p, err
}

func (p *bareProcesses) piece(ctx context.Context, items int) (benchSample, error) {
	var got []struct{ Began, Ended []int64 }
	_, err := fmt.Fprintln(p.in, items)
	if err == nil {
		err = p.out.Decode(&got)
	}
	if err != nil {
		p.close()
		if ctx.Err() != nil {
			return benchSample{}, context.Cause(ctx)
		}
		return benchSample{}, fmt.Errorf("a bare process ended: %s: %s", p.cmd.ProcessState, lastLine(p.stderr.String()))
	}
	var stamps []stamp
	for i, process := range got {
		for n := range process.Ended {
			stamps = append(stamps, stamp{Slot: strconv.Itoa(i), Began: process.Began[n], Ended: process.Ended[n]})
		}
	}
	return benchSampleOf(stamps, len(got)), nil
}

func (p *bareProcesses) close() {
	_ = p.in.Close() // the loops end with their input
	_ = p.cmd.Wait()
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
