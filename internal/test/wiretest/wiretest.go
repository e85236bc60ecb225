// Package wiretest has both sides of the wire, for tests: the worker's side of a task
// process in any language, and a task process in Go.
//
// It owns the process, its wire and its output. It never starts one without a test.
package wiretest

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/wire"
)

// Process is a task process with the wire and an output file, as a slot has it.
type Process struct {
	*wire.Conn
	Cmd *exec.Cmd
	// Run is the number of the last run.
	Run int64
	// Concurrent says that items are answered in any order.
	Concurrent bool
	// RetryOn is that of each run.
	RetryOn []string

	t      *testing.T
	output string
}

// Start starts a command with the process's end of a wire, and sends nothing. It closes
// the files.
func Start(t *testing.T, near io.ReadWriteCloser, files []*os.File, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Conn: wire.New(near), Cmd: cmd, t: t, output: filepath.Join(t.TempDir(), "output")}
	output, err := os.OpenFile(p.output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = output, output, files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	for _, file := range append(files, output) {
		require.NoError(t, file.Close())
	}
	// A test that waits for ever ends with its process.
	limit := time.AfterFunc(time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	t.Cleanup(func() {
		limit.Stop()
		near.Close()
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		if t.Failed() {
			t.Logf("the process printed:\n%s", p.Printed())
		}
	})
	return p
}

// Next is the next message of the process.
func (p *Process) Next() wire.Message {
	p.t.Helper()
	m, err := p.Read()
	require.NoError(p.t, err)
	return m
}

// Send sends items without waiting.
func (p *Process) Send(attempts int, items ...string) {
	p.t.Helper()
	p.Run++
	r := wire.Run{Run: p.Run, Attempts: attempts, RetryOn: p.RetryOn}
	for _, item := range items {
		r.Items = append(r.Items, json.RawMessage(item))
	}
	require.NoError(p.t, p.Conn.Send(r))
}

// Answer is what an item came to: a value, or its fault.
type Answer struct {
	Value    string
	Fault    *wire.Raised
	Attempts int
	Final    bool
	Out      int64
	// Raw is that it was no JSON on its way.
	Raw bool
}

// Do sends items and waits for an answer to each: in order, unless they run at the same
// time.
func (p *Process) Do(attempts int, items ...string) []Answer {
	p.t.Helper()
	p.Send(attempts, items...)
	answers := make([]Answer, len(items))
	for answered := 0; answered < len(items); {
		n, got := p.read()
		if !p.Concurrent {
			require.Equal(p.t, answered, n)
		}
		answered += copy(answers[n:], got)
	}
	return answers
}

// Take is the answer to the item at position n, which comes alone.
func (p *Process) Take(n int) Answer {
	p.t.Helper()
	at, answers := p.read()
	require.Equal(p.t, []int{n, 1}, []int{at, len(answers)})
	return answers[0]
}

// read reads one message with answers, from position n on.
func (p *Process) read() (n int, answers []Answer) {
	p.t.Helper()
	switch m := p.Next().(type) {
	case wire.Results:
		require.Equal(p.t, p.Run, m.Run)
		for i, value := range m.Values {
			a := Answer{Attempts: 1, Out: m.Out}
			if m.Kinds != nil && m.Kinds[i] != wire.JSON {
				var err error
				value, err = m.Kinds[i].Text(value)
				require.NoError(p.t, err)
				a.Raw = true
			}
			require.True(p.t, json.Valid(value), "%s", value)
			a.Value = string(value)
			if m.Attempts != nil {
				a.Attempts = m.Attempts[i]
			}
			answers = append(answers, a)
		}
		return m.N, answers
	case wire.Fault:
		require.Equal(p.t, p.Run, m.Run)
		require.NoError(p.t, p.Conn.Send(wire.Next{}))
		return m.N, []Answer{{Fault: &m.Raised, Attempts: max(1, m.Attempts), Final: m.Final, Out: m.Out}}
	default:
		require.Fail(p.t, "unexpected message", "%#v", m)
		return 0, nil
	}
}

// Values is Do for items that all succeed.
func (p *Process) Values(items ...string) (list []string) {
	p.t.Helper()
	for i, a := range p.Do(1, items...) {
		require.Nil(p.t, a.Fault, "item %d", i)
		list = append(list, a.Value)
	}
	return list
}

// Printed is what the process has written to its output.
func (p *Process) Printed() string {
	data, err := os.ReadFile(p.output)
	require.NoError(p.t, err)
	return string(data)
}

// Exit waits for the end of the process and returns its status.
func (p *Process) Exit() int {
	p.t.Helper()
	for {
		if _, err := p.Read(); err != nil {
			require.ErrorIs(p.t, err, io.EOF)
			break
		}
	}
	p.Cmd.Wait()
	return p.Cmd.ProcessState.ExitCode()
}
