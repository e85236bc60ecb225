package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/wire"
)

// TestMain turns the test binary into a task process when a test starts it as one.
func TestMain(m *testing.M) {
	if os.Getenv("GPUMUX_TEST_TASK") == "" {
		os.Exit(m.Run())
	}
	failures := 0
	err := Serve(context.Background(), map[string]Handler{
		"double": Func(func(_ context.Context, x float64) (float64, error) { return 2 * x, nil }),
		"fail": Func(func(_ context.Context, x int) (int, error) {
			return 0, fmt.Errorf("item %d: %w", x, errors.Join(os.ErrNotExist, &os.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}))
		}),
		"panic": Func(func(_ context.Context, list []int) (int, error) { return list[5], nil }),
		"third": Func(func(_ context.Context, x int) (int, error) {
			if failures++; failures%3 != 0 {
				return 0, errors.New("not yet")
			}
			return x, nil
		}),
		"print": Func(func(_ context.Context, x int) (int, error) {
			_, err := fmt.Println("item", x)
			return x, err
		}),
		"traced":  Func(func(context.Context, int) (string, error) { return os.Getenv("TRACEPARENT"), nil }),
		"nothing": func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil },
		"where": Func(func(ctx context.Context, x int) (string, error) {
			hello, ok := SeatOf(ctx)
			if !ok {
				return "", errors.New("not in a slot")
			}
			return hello.Slot, Progress(ctx, map[string]int{"seen": x})
		}),
		"child": Func(func(context.Context, any) (string, error) {
			out, err := exec.Command("sh", "-c", "ls -l /proc/self/fd").Output()
			return string(out), err
		}),
		"wait": Func(func(ctx context.Context, _ any) (any, error) {
			if err := Progress(ctx, "waiting"); err != nil {
				return nil, err
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

type task struct {
	*wire.Conn
	cmd    *exec.Cmd
	output *os.File
}

// printed is how many bytes the process wrote to its standard output.
func (p *task) printed(t *testing.T) int64 {
	info, err := p.output.Stat()
	require.NoError(t, err)
	return info.Size()
}

// start runs the test binary as a task process and greets it.
func start(t *testing.T, target string) *task {
	t.Helper()
	near, file, err := wire.Pair()
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GPUMUX_TEST_TASK=1")
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stderr = os.Stderr
	output, err := os.OpenFile(filepath.Join(t.TempDir(), "output"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { output.Close() })
	cmd.Stdout = output
	require.NoError(t, cmd.Start())
	require.NoError(t, file.Close())
	require.NoError(t, near.SetDeadline(time.Now().Add(20*time.Second)))
	p := &task{wire.NewWorker(near), cmd, output}
	t.Cleanup(func() { near.Close(); cmd.Process.Kill(); cmd.Wait() })
	hello := p.next(t).(wire.ProcessHello)
	require.Equal(t, cmd.Process.Pid, hello.PID)
	require.Contains(t, hello.Runtime, "go1.")
	require.NoError(t, p.Write(wire.Hello{Version: wire.Version, Task: "t", Target: target, Slot: "cpu/1", Device: "CPU"}))
	return p
}

func (p *task) next(t *testing.T) wire.Message {
	t.Helper()
	m, err := p.Read()
	require.NoError(t, err)
	return m
}

func TestServe_RunsItemsAndStops(t *testing.T) {
	p := start(t, "double")
	require.Equal(t, wire.Ready{}, p.next(t))
	for run := int64(1); run <= 2; run++ {
		require.NoError(t, p.Write(wire.Run{Run: run, Items: raws("1", "2.5", `"x"`)}))
		for n, want := range []string{"2", "5"} {
			r := p.next(t).(wire.Results)
			require.Equal(t, wire.Results{Run: run, N: n, Values: raws(want), Busy: r.Busy, Peak: r.Peak}, r)
		}
		f := p.next(t).(wire.Fault)
		require.Equal(t, 2, f.N)
		require.Contains(t, f.Raised.Message, "item is not a float64")
		require.NoError(t, p.Write(wire.Next{}))
	}
	require.NoError(t, p.Write(wire.Stop{}))
	require.NoError(t, p.cmd.Wait())
}

func TestServe_WaitsForNextAfterAFault(t *testing.T) {
	p := start(t, "print")
	require.Equal(t, wire.Ready{}, p.next(t))
	require.NoError(t, p.Write(wire.Run{Run: 1, Items: raws(`"x"`, `1`)}))
	require.NoError(t, p.Write(wire.Run{Run: 2, Items: raws(`2`)}))
	require.Equal(t, 0, p.next(t).(wire.Fault).N)
	require.Zero(t, p.printed(t), "the second item waits for leave")
	require.NoError(t, p.Write(wire.Next{}))
	require.Equal(t, int64(len("item 1\n")), p.next(t).(wire.Results).Out)
	require.Equal(t, int64(len("item 1\nitem 2\n")), p.next(t).(wire.Results).Out, "a run that came ahead is not lost")

	require.NoError(t, p.Write(wire.Run{Run: 3, Items: raws(`"x"`, `1`)}))
	require.IsType(t, wire.Fault{}, p.next(t))
	require.NoError(t, p.Write(wire.Stop{}))
	require.NoError(t, p.cmd.Wait())
	require.Equal(t, int64(len("item 1\nitem 2\n")), p.printed(t), "stop instead of next: the item never began")
}

func TestServe_RunsThatWaitDuringAFault(t *testing.T) {
	p := start(t, "double")
	require.Equal(t, wire.Ready{}, p.next(t))
	require.NoError(t, p.Write(wire.Run{Run: 1, Items: raws(`"x"`, `1`)}))
	require.NoError(t, p.Write(wire.Run{Run: 2, Items: raws(`2`)}))
	require.IsType(t, wire.Fault{}, p.next(t))
	require.NoError(t, p.Write(wire.Next{}))
	require.Equal(t, raws("2"), p.next(t).(wire.Results).Values)
	require.Equal(t, raws("4"), p.next(t).(wire.Results).Values)
}

func TestServe_EndOfStreamIsStop(t *testing.T) {
	p := start(t, "double")
	require.Equal(t, wire.Ready{}, p.next(t))
	require.NoError(t, p.Close())
	require.NoError(t, p.cmd.Wait())
}

func TestServe_UnknownTaskListsTheKnown(t *testing.T) {
	p := start(t, "dubble")
	f := p.next(t).(wire.Fault)
	require.Equal(t, "bad_input", f.Raised.Class)
	require.Equal(t, `this program has no task "dubble"; it has: child, double, fail, nothing, panic, print, third, traced, wait, where`, f.Raised.Message)
	_, err := p.Read()
	require.Equal(t, io.EOF, err)
	require.Error(t, p.cmd.Wait())
}

func TestServe_ErrorsPanicsAttempts(t *testing.T) {
	p := start(t, "fail")
	require.Equal(t, wire.Ready{}, p.next(t))
	require.NoError(t, p.Write(wire.Run{Run: 1, Attempts: 3, Items: raws("7")}))
	f := p.next(t).(wire.Fault)
	require.Equal(t, 3, f.Attempts)
	require.Contains(t, f.Raised.Message, "item 7: ")
	require.Contains(t, f.Raised.Message, "open x: no such file or directory")

	p = start(t, "panic")
	require.Equal(t, wire.Ready{}, p.next(t))
	require.NoError(t, p.Write(wire.Run{Run: 1, Items: raws("[1]", "[0,0,0,0,0,9]")}))
	f = p.next(t).(wire.Fault)
	require.Contains(t, f.Raised.Message, "index out of range [5] with length 1")
	require.Contains(t, f.Raised.Traceback, "serve_test.go")
	require.NotContains(t, f.Raised.Traceback, "debug.Stack")
	require.NoError(t, p.Write(wire.Next{}))
	require.Equal(t, raws("9"), p.next(t).(wire.Results).Values, "the process lives on")

	p = start(t, "third")
	require.Equal(t, wire.Ready{}, p.next(t))
	require.NoError(t, p.Write(wire.Run{Run: 1, Attempts: 5, Items: raws("4")}))
	require.Equal(t, []int{3}, p.next(t).(wire.Results).Attempts)
}

func TestServe_SlotProgressAndNull(t *testing.T) {
	p := start(t, "where")
	require.Equal(t, wire.Ready{}, p.next(t))
	require.NoError(t, p.Write(wire.Run{Run: 3, Items: raws("1", "2")}))
	for n := range 2 {
		require.Equal(t, wire.ProgressReport{Run: 3, N: n, Value: json.RawMessage(fmt.Sprintf(`{"seen":%d}`, n+1))}, p.next(t))
		require.Equal(t, raws(`"cpu/1"`), p.next(t).(wire.Results).Values)
	}
	p = start(t, "nothing")
	require.Equal(t, wire.Ready{}, p.next(t))
	require.NoError(t, p.Write(wire.Run{Run: 1, Items: raws("1")}))
	require.Equal(t, raws("null"), p.next(t).(wire.Results).Values)
	require.NoError(t, Progress(context.Background(), 1), "outside of a slot")
}

// An item finds the place of its call in the trace, and no earlier call's.
func TestServe_Trace(t *testing.T) {
	p := start(t, "traced")
	require.Equal(t, wire.Ready{}, p.next(t))
	for run, trace := range []string{"", "00-a-b-01", ""} {
		require.NoError(t, p.Write(wire.Run{Run: int64(run + 1), Items: raws("1"), Trace: trace}))
		require.Equal(t, raws(fmt.Sprintf("%q", trace)), p.next(t).(wire.Results).Values)
	}
}

func TestServe_ChildrenDoNotInheritTheWire(t *testing.T) {
	p := start(t, "child")
	require.Equal(t, wire.Ready{}, p.next(t))
	require.NoError(t, p.Write(wire.Run{Run: 1, Items: raws("null")}))
	var list string
	require.NoError(t, json.Unmarshal(p.next(t).(wire.Results).Values[0], &list))
	require.Contains(t, list, "/dev/null")
	require.NotContains(t, list, "socket:")
}

func TestServe_TermEndsTheItem(t *testing.T) {
	p := start(t, "wait")
	require.Equal(t, wire.Ready{}, p.next(t))
	require.NoError(t, p.Write(wire.Run{Run: 1, Items: raws("null")}))
	require.Equal(t, json.RawMessage(`"waiting"`), p.next(t).(wire.ProgressReport).Value)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	var exit *exec.ExitError
	require.ErrorAs(t, p.cmd.Wait(), &exit)
	require.Equal(t, 1, exit.ExitCode())
}

func TestServe_RefusesAnotherVersion(t *testing.T) {
	near, file, err := wire.Pair()
	require.NoError(t, err)
	defer near.Close()
	far, err := net.FileConn(file)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- serve(t.Context(), far, nil) }()
	require.NoError(t, wire.NewWorker(near).Write(wire.Hello{Version: 9}))
	require.ErrorContains(t, <-served, "version 1 here, 9 on the other side")
}

func raws(values ...string) []json.RawMessage {
	list := make([]json.RawMessage, len(values))
	for i, v := range values {
		list[i] = json.RawMessage(v)
	}
	return list
}
