package session_test

import (
	"context"
	"encoding/json"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/test/wiretest"
	"github.com/gpumux/gpumux/internal/wire"
)

// TestMain also is the task process of the tests.
func TestMain(m *testing.M) {
	if os.Getenv("GPUMUX_TEST_PROGRAM") == "task" {
		if wiretest.Serve(func(item json.RawMessage) (json.RawMessage, error) { return append(item, '0'), nil }) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func start(t *testing.T, o session.Options) *session.Session {
	t.Helper()
	o.Name, o.Device, o.StartLimit, o.Log = "cpu/0", "CPU", time.Minute, zap.NewNop()
	task := launch.Task{Name: "tenfold", Program: []string{os.Args[0]}, Env: map[string]string{"GPUMUX_TEST_PROGRAM": "task"}}
	p, err := session.Start(t.Context(), task, o, nil)
	require.NoError(t, err)
	return p
}

func TestSession_FromItsStartToItsEnd(t *testing.T) {
	p := start(t, session.Options{})
	_, evidence, _ := p.Greet(t.Context())
	require.Nil(t, evidence)
	require.True(t, p.Say(wire.Run{Run: 1, Attempts: 1, Items: []json.RawMessage{[]byte("7")}}))
	require.Equal(t, "70", string((<-p.Heard).(wire.Results).Values[0]))

	p.End(true, time.Minute)
	require.Equal(t, 0, p.Process.Status.ExitCode(), "it was asked, and ended by itself")
}

func TestSession_ADeathIsEvidence(t *testing.T) {
	p := start(t, session.Options{Single: true, Memory: 1 << 30})
	require.Nil(t, p.Board, "one result needs none")
	_, evidence, _ := p.Greet(t.Context())
	require.Nil(t, evidence)
	p.Process.Signal(syscall.SIGKILL)
	e := p.Death(<-p.Heard)
	require.Equal(t, syscall.SIGKILL, e.Signal)
	p.Explain(e, process.MemoryKills())
	require.False(t, e.OverBudget)
	require.EqualValues(t, 1<<30, e.Budget)
	p.Explain(e, process.MemoryKills()-1)
	require.Equal(t, gpumux.FaultHostOOM, diagnosis.Diagnose(*e).Fault.Kind, "the kernel killed for memory meanwhile")
	p.Kill()
}

// sharp is a watch that wants each process ended at once.
type sharp struct{ closed atomic.Bool }

func (s *sharp) Follow(_ string, _ int, budget gpumux.Size, over func(session.Over)) session.Watched {
	over(session.Over{Held: 2 * int64(budget)})
	return s
}

func (s *sharp) Busy(bool)      {}
func (s *sharp) Held() int64    { return 7 }
func (s *sharp) Measure() int64 { return 8 }
func (s *sharp) Peak() int64    { return 9 }
func (s *sharp) Close()         { s.closed.Store(true) }

func (s *sharp) AwaitReturn(context.Context) int64 { return 0 }

func TestSession_WhatPassesItsBudgetIsEnded(t *testing.T) {
	watch := &sharp{}
	p := start(t, session.Options{Memory: 1 << 30, Watch: watch})
	_, e, _ := p.Greet(t.Context())
	require.NotNil(t, e)
	require.Equal(t, syscall.SIGKILL, e.Signal)
	p.Explain(e, process.MemoryKills())
	require.True(t, e.OverBudget)
	require.EqualValues(t, 2<<30, e.Peak)
	require.Equal(t, gpumux.FaultBudget, diagnosis.Diagnose(*e).Fault.Kind)
	require.True(t, watch.closed.Load(), "its end was seen by then")
	p.Kill()
}
