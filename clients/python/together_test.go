package python_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/wiretest"
	"github.com/gpumux/gpumux/internal/wire"
)

// A micro-batch ends before it costs more than its limit, or has its most items.
func TestBatch_EndsAtItsLimit(t *testing.T) {
	p := start(t, "together.py:priced")
	require.Equal(t, "[4,2] [6,2] [11,1] [1,4] [1,4] [1,4] [1,4] [1,1]",
		strings.Join(p.Values("4", "6", "11", "1", "1", "1", "1", "1"), " "))
	require.Equal(t, "[4,6,11,1,1,1,1,1]", p.Values(`"counted"`)[0], "each once")

	p = start(t, "together.py:texts")
	require.Equal(t, "2 2 1", strings.Join(p.Values(`"12345"`, `"12345"`, `"1"`), " "))
}

// A cost that cannot be had fails its item, and those around it run together.
func TestBatch_CostIsTheItemsOwn(t *testing.T) {
	p := start(t, "together.py:priced")
	items := []string{"1", "2", `"raises"`, "3", `"text"`, `"nan"`, `"less"`, "{", "4"}
	got := p.Do(3, items...)
	for i, want := range []string{"[1,2]", "[2,2]", "", "[3,1]", "", "", "", "", "[4,1]"} {
		require.Equal(t, want, got[i].Value, items[i])
		require.Equal(t, want == "", got[i].Fault != nil, items[i])
	}
	require.Equal(t, "ZeroDivisionError", got[2].Fault.Class)
	require.Contains(t, got[2].Fault.Traceback, "together.py")
	require.Equal(t, "the cost of @gpumux.batch gave '12' for this item; return a number of at least 0", got[4].Fault.Message)
	require.Contains(t, got[5].Fault.Message, "gave nan for")
	require.Contains(t, got[6].Fault.Message, "gave -1 for")
	require.Contains(t, got[7].Fault.Message, "the item is not JSON")
	require.Equal(t, `[1,2,"raises",3,"text","nan","less",4]`, p.Values(`"counted"`)[0], "each once")
}

// A micro-batch that is halved is not priced again.
func TestBatch_CostOutlivesAHalving(t *testing.T) {
	p := start(t, "together.py:priced")
	got := p.Do(1, "0", "0", `"counted"`)
	require.Equal(t, "[0,3]", got[0].Value)
	require.Equal(t, "[0,0]", got[2].Value)
}

// answered reads so many results, each alone, and returns their places and values.
func answered(t *testing.T, p *wiretest.Process, n int) (at []string, values []string) {
	t.Helper()
	for range n {
		m := p.Next().(wire.Results)
		require.Len(t, m.Values, 1)
		at = append(at, fmt.Sprintf("%d-%d", m.Run, m.N))
		values = append(values, string(m.Values[0]))
	}
	return at, values
}

// Four of eight items run at a time. Each is answered when it has ended, before those
// that began earlier.
func TestConcurrent_RunsAFullWindow(t *testing.T) {
	p := start(t, "together.py:meet")
	require.Equal(t, "4 4 4 4", strings.Join(p.Values("4", "4", "4", "4"), " "))

	p = start(t, "together.py:meet")
	p.Send(1, "8", "1", "1", "1")
	p.Send(1, "1", "1", "1", "8")
	at, values := answered(t, p, 6)
	require.ElementsMatch(t, []string{"1-1", "1-2", "1-3", "2-0", "2-1", "2-2"}, at)
	require.NotContains(t, values, "8", "the first waits for the last, and nobody waits for it")
	at, _ = answered(t, p, 2)
	require.ElementsMatch(t, []string{"1-0", "2-3"}, at)
}

// The worker learns how many items run at the same time.
func TestConcurrent_Announces(t *testing.T) {
	for target, concurrent := range map[string]int{"together.py:meet": 4, "together.py:faulty": 64, "together.py:Engine": 1} {
		ready := greet(t, "tasks", target).Next().(wire.Ready)
		require.Equal(t, []int{0, concurrent}, []int{ready.Batch, ready.Concurrent}, target)
	}
	require.Equal(t, "2 4", strings.Join(start(t, "together.py:Engine").Values("1", "2"), " "))
}

// Runs that the worker gives up end without answers, whether their items run, wait or do
// not care, and the others go on.
func TestConcurrent_CancelsRuns(t *testing.T) {
	p := start(t, "together.py:waits")
	p.Send(1, `"a"`, `"b"`)
	p.Send(1, `"stays"`)
	p.Send(1, `"c"`, `"waits"`)
	for range 4 {
		require.IsType(t, wire.ProgressReport{}, p.Next(), "four run")
	}
	require.NoError(t, p.Conn.Send(wire.Cancel{Runs: []int64{1, 3}}))
	require.Equal(t, wire.Canceled{Runs: []int64{1, 3}}, p.Next())
	require.Equal(t, "a b c", strings.Join(strings.Fields(p.Printed()), " "), "each was told, and what waited has not begun")
	p.Send(1, `"stubborn"`)
	require.IsType(t, wire.ProgressReport{}, p.Next())
	require.NoError(t, p.Conn.Send(wire.Cancel{Runs: []int64{4}}))
	p.Send(1, `"opens"`)
	got := []wire.Message{p.Next(), p.Next(), p.Next()}
	require.Contains(t, got, wire.Canceled{Runs: []int64{4}})
	require.NoError(t, p.Conn.Send(wire.Cancel{Runs: []int64{2}}))
	require.Equal(t, wire.Canceled{Runs: []int64{2}}, p.Next(), "it was answered, and nothing runs")
	require.Equal(t, `"later"`, p.Values(`"later"`)[0])
}

func TestConcurrent_EachItemHasItsOwnFault(t *testing.T) {
	p := start(t, "together.py:faulty")
	got := p.Do(3, `"good"`, `"exit"`, `"third"`, `"odd"`, "{", `"last"`)
	require.Equal(t, wiretest.Answer{Value: "1", Attempts: 1}, got[0])
	require.Equal(t, "the task called sys.exit(3); return a value or raise an exception instead", got[1].Fault.Message)
	require.Equal(t, 3, got[1].Attempts)
	require.Contains(t, strings.SplitN(got[1].Fault.Traceback, "\n", 3)[1], "together.py", "no frame of the runtime")
	require.Equal(t, wiretest.Answer{Value: "3", Attempts: 3}, got[2])
	require.Contains(t, got[3].Fault.Message, "result is an object")
	require.Contains(t, got[4].Fault.Message, "the item is not JSON")
	require.Equal(t, wiretest.Answer{Value: "1", Attempts: 1}, got[5])
}

func TestConcurrent_ProgressIsOfTheRightItem(t *testing.T) {
	p := start(t, "together.py:reports")
	p.Send(1, `"first"`, `"second"`)
	require.Equal(t, wire.ProgressReport{Run: 1, N: 1, Value: json.RawMessage(`"of the second, early"`)}, p.Next())
	require.Equal(t, wire.ProgressReport{Run: 1, N: 1, Value: json.RawMessage(`"of the second"`)}, p.Next())
	require.Equal(t, wire.ProgressReport{Run: 1, Value: json.RawMessage(`"of the first"`)}, p.Next())
	require.Equal(t, "first", unquote(t, p.Next().(wire.Results).Values[0]))
	p.Send(1, `"third"`)
	at, _ := answered(t, p, 2)
	require.ElementsMatch(t, []string{"1-1", "2-0"}, at)
}

func unquote(t *testing.T, raw []byte) (text string) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, &text))
	return text
}

func TestConcurrent_CleansUpWhenTheProcessEnds(t *testing.T) {
	p := start(t, "together.py:cleans")
	p.Send(1, "0", "1")
	require.IsType(t, wire.ProgressReport{}, p.Next())
	require.Eventually(t, func() bool { return strings.Contains(p.Printed(), "both run") }, time.Minute, time.Millisecond)
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 143, p.Exit())
	require.Contains(t, p.Printed(), "cleaned 0")
	require.Contains(t, p.Printed(), "cleaned 1")
}

func TestConcurrent_RefusesAFunctionThatIsNotAsync(t *testing.T) {
	fault := greet(t, "broken", "sync_concurrent.py:f").Next().(wire.Fault).Raised
	require.Equal(t, "TypeError", fault.Class)
	require.Equal(t, "gpumux.concurrent: f is no async function; write `async def`, or use gpumux.batch for lists of items", fault.Message)
}

func TestConcurrent_FilesOfEachItem(t *testing.T) {
	p := start(t, "together.py:saves")
	folder := t.TempDir()
	p.Run++
	require.NoError(t, p.Conn.Send(wire.Run{Run: 1, Attempts: 1, Folder: folder,
		Items: []json.RawMessage{json.RawMessage(`"a"`), json.RawMessage(`"bad"`), json.RawMessage(`"c"`)}}))
	for range 3 {
		message := p.Next()
		if fault, raised := message.(wire.Fault); raised {
			require.Equal(t, 1, fault.N)
			require.NoError(t, p.Conn.Send(wire.Next{}))
			require.NoDirExists(t, filepath.Join(folder, "1-1"))
			continue
		}
		m := message.(wire.Results)
		n, name := m.N, []string{"a", "bad", "c"}[m.N]
		require.Equal(t, []string{name, "more"}, m.Files)
		data, err := os.ReadFile(filepath.Join(folder, "1-"+string(rune('0'+n)), "more"))
		require.NoError(t, err)
		require.Equal(t, "more of "+name, string(data))
	}
}

// A task that is an asynchronous context manager is entered once, on the loop of its
// items. It is left when they have ended, while what it runs itself still does.
func TestManaged_EnteredAndLeft(t *testing.T) {
	for _, class := range []string{"Engine", "One"} {
		for _, end := range []string{"stop", "end of stream", "signal"} {
			t.Run(class+"/"+end, func(t *testing.T) {
				p := start(t, "managed.py:"+class)
				require.Equal(t, `["a",1,true] ["b",1,true]`, strings.Join(p.Values(`"a"`, `"b"`), " "))
				require.Equal(t, `["c",1,true]`, p.Values(`"c"`)[0])
				status, printed := 0, "served\nleft (None, None, None) True\n"
				switch end {
				case "stop":
					require.NoError(t, p.Conn.Send(wire.Stop{}))
				case "end of stream":
					require.NoError(t, p.Close())
					p.Cmd.Wait()
					require.Zero(t, p.Cmd.ProcessState.ExitCode())
					require.Equal(t, printed, p.Printed())
					return
				case "signal":
					p.Send(1, `"waits"`)
					require.IsType(t, wire.ProgressReport{}, p.Next())
					require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
					status, printed = 143, "cancelled\n"+printed
				}
				require.Equal(t, status, p.Exit())
				require.Equal(t, printed, p.Printed())
			})
		}
	}
}

// Whatever its exit does, the process ends as others end, and what it runs is cancelled.
func TestManaged_ExitThatFails(t *testing.T) {
	for how, says := range map[string]string{
		"raises": "ValueError: no way out\n", "cancelled": "CancelledError\n", "exits": "", "returns": "",
	} {
		for _, status := range []int{0, 143} {
			t.Run(fmt.Sprint(how, status), func(t *testing.T) {
				p := start(t, "managed.py:Leaves")
				require.Equal(t, "null", p.Values(quote(how))[0])
				if status == 0 {
					require.NoError(t, p.Conn.Send(wire.Stop{}))
				} else {
					require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
				}
				if says != "" {
					require.Zero(t, p.Next().(wire.Fault).Run)
				}
				require.Equal(t, status, p.Exit())
				require.Regexp(t, `^leaving\n(?s:.*)`+says+`helped\n$`, p.Printed())
			})
		}
	}
}

// An exit that hangs ends with the next signal. The worker kills the process meanwhile.
func TestManaged_ExitThatHangs(t *testing.T) {
	p := start(t, "managed.py:Leaves")
	require.Equal(t, "null", p.Values(`"hangs"`)[0])
	require.NoError(t, p.Conn.Send(wire.Stop{}))
	require.Eventually(t, func() bool { return p.Printed() == "leaving\n" }, time.Minute, time.Millisecond)
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 143, p.Exit())
	require.Equal(t, "leaving\nhelped\n", p.Printed())
}

func TestManaged_EntryThatFails(t *testing.T) {
	for target, want := range map[string][3]string{
		"Closed": {"ConnectionError", "the engine said no", "helped\n"}, "Quits": {"SystemExit", "3"}, "Half": {"AttributeError", "__aexit__"},
	} {
		t.Run(target, func(t *testing.T) {
			p := greet(t, "tasks", "managed.py:"+target)
			fault := p.Next().(wire.Fault).Raised
			require.Equal(t, want[0], fault.Class)
			require.Contains(t, fault.Message, want[1])
			require.Equal(t, 65, p.Exit())
			require.Equal(t, want[2], p.Printed(), "neither entered nor left")
		})
	}
	t.Setenv("HOME", t.TempDir())
	p := greet(t, "tasks", "managed.py:Slow")
	require.Eventually(t, func() bool { _, err := os.Stat(os.Getenv("HOME") + "/entering"); return err == nil }, time.Minute, time.Millisecond)
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 143, p.Exit())
	require.Equal(t, "stopped entering\n", p.Printed())
}
