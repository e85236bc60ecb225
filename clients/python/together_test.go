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

	"github.com/gpumux/gpumux/internal/wire"
)

// A micro-batch ends before it costs more than its limit, or has its most items.
func TestBatch_EndsAtItsLimit(t *testing.T) {
	p := start(t, "together.py:priced")
	require.Equal(t, "[4,2] [6,2] [11,1] [1,4] [1,4] [1,4] [1,4] [1,1]",
		strings.Join(p.values("4", "6", "11", "1", "1", "1", "1", "1"), " "))
	require.Equal(t, "[4,6,11,1,1,1,1,1]", p.values(`"counted"`)[0], "each once")

	p = start(t, "together.py:texts")
	require.Equal(t, "2 2 1", strings.Join(p.values(`"12345"`, `"12345"`, `"1"`), " "))
}

// A cost that cannot be had fails its item, and those around it run together.
func TestBatch_CostIsTheItemsOwn(t *testing.T) {
	p := start(t, "together.py:priced")
	items := []string{"1", "2", `"raises"`, "3", `"text"`, `"nan"`, `"less"`, "{", "4"}
	got := p.do(3, items...)
	for i, want := range []string{"[1,2]", "[2,2]", "", "[3,1]", "", "", "", "", "[4,1]"} {
		require.Equal(t, want, got[i].value, items[i])
		require.Equal(t, want == "", got[i].fault != nil, items[i])
	}
	require.Equal(t, "ZeroDivisionError", got[2].fault.Class)
	require.Contains(t, got[2].fault.Traceback, "together.py")
	require.Equal(t, "the cost of @gpumux.batch gave '12' for this item; return a number of at least 0", got[4].fault.Message)
	require.Contains(t, got[5].fault.Message, "gave nan for")
	require.Contains(t, got[6].fault.Message, "gave -1 for")
	require.Contains(t, got[7].fault.Message, "the item is not JSON")
	require.Equal(t, `[1,2,"raises",3,"text","nan","less",4]`, p.values(`"counted"`)[0], "each once")
}

// A micro-batch that is halved is not priced again.
func TestBatch_CostOutlivesAHalving(t *testing.T) {
	p := start(t, "together.py:priced")
	got := p.do(1, "0", "0", `"counted"`)
	require.Equal(t, "[0,3]", got[0].value)
	require.Equal(t, "[0,0]", got[2].value)
}

// answered reads so many results, each alone, and returns their places and values.
func (p *process) answered(n int) (at []string, values []string) {
	p.t.Helper()
	for range n {
		m := p.next().(wire.Results)
		require.Len(p.t, m.Values, 1)
		at = append(at, fmt.Sprintf("%d-%d", m.Run, m.N))
		values = append(values, string(m.Values[0]))
	}
	return at, values
}

// Four of eight items run at a time. Each is answered when it has ended, before those
// that began earlier.
func TestConcurrent_RunsAFullWindow(t *testing.T) {
	p := start(t, "together.py:meet")
	require.Equal(t, "4 4 4 4", strings.Join(p.values("4", "4", "4", "4"), " "))

	p = start(t, "together.py:meet")
	p.send(1, "8", "1", "1", "1")
	p.send(1, "1", "1", "1", "8")
	at, values := p.answered(6)
	require.ElementsMatch(t, []string{"1-1", "1-2", "1-3", "2-0", "2-1", "2-2"}, at)
	require.NotContains(t, values, "8", "the first waits for the last, and nobody waits for it")
	at, _ = p.answered(2)
	require.ElementsMatch(t, []string{"1-0", "2-3"}, at)
}

// The worker learns how many items run at the same time.
func TestConcurrent_Announces(t *testing.T) {
	for target, concurrent := range map[string]int{"together.py:meet": 4, "together.py:faulty": 64, "together.py:Engine": 1} {
		ready := greet(t, "tasks", target).next().(wire.Ready)
		require.Equal(t, []int{0, concurrent}, []int{ready.Batch, ready.Concurrent}, target)
	}
	require.Equal(t, "2 4", strings.Join(start(t, "together.py:Engine").values("1", "2"), " "))
}

// Runs that the worker gives up end without answers, whether their items run, wait or do
// not care, and the others go on.
func TestConcurrent_CancelsRuns(t *testing.T) {
	p := start(t, "together.py:waits")
	p.send(1, `"a"`, `"b"`)
	p.send(1, `"stays"`)
	p.send(1, `"c"`, `"waits"`)
	for range 4 {
		require.IsType(t, wire.ProgressReport{}, p.next(), "four run")
	}
	require.NoError(t, p.Write(wire.Cancel{Runs: []int64{1, 3}}))
	require.Equal(t, wire.Canceled{Runs: []int64{1, 3}}, p.next())
	require.Equal(t, "a b c", strings.Join(strings.Fields(p.printed()), " "), "each was told, and what waited has not begun")
	p.send(1, `"stubborn"`)
	require.IsType(t, wire.ProgressReport{}, p.next())
	require.NoError(t, p.Write(wire.Cancel{Runs: []int64{4}}))
	p.send(1, `"opens"`)
	got := []wire.Message{p.next(), p.next(), p.next()}
	require.Contains(t, got, wire.Canceled{Runs: []int64{4}})
	require.NoError(t, p.Write(wire.Cancel{Runs: []int64{2}}))
	require.Equal(t, wire.Canceled{Runs: []int64{2}}, p.next(), "it was answered, and nothing runs")
	require.Equal(t, `"later"`, p.values(`"later"`)[0])
}

func TestConcurrent_EachItemHasItsOwnFault(t *testing.T) {
	p := start(t, "together.py:faulty")
	got := p.do(3, `"good"`, `"exit"`, `"third"`, `"odd"`, "{", `"last"`)
	require.Equal(t, answer{value: "1", attempts: 1}, got[0])
	require.Equal(t, "the task called sys.exit(3); return a value or raise an exception instead", got[1].fault.Message)
	require.Equal(t, 3, got[1].attempts)
	require.Contains(t, strings.SplitN(got[1].fault.Traceback, "\n", 3)[1], "together.py", "no frame of the runtime")
	require.Equal(t, answer{value: "3", attempts: 3}, got[2])
	require.Contains(t, got[3].fault.Message, "result is a object")
	require.Contains(t, got[4].fault.Message, "the item is not JSON")
	require.Equal(t, answer{value: "1", attempts: 1}, got[5])
}

func TestConcurrent_ProgressIsOfTheRightItem(t *testing.T) {
	p := start(t, "together.py:reports")
	p.send(1, `"first"`, `"second"`)
	require.Equal(t, wire.ProgressReport{Run: 1, N: 1, Value: json.RawMessage(`"of the second, early"`)}, p.next())
	require.Equal(t, wire.ProgressReport{Run: 1, N: 1, Value: json.RawMessage(`"of the second"`)}, p.next())
	require.Equal(t, wire.ProgressReport{Run: 1, Value: json.RawMessage(`"of the first"`)}, p.next())
	require.Equal(t, "first", unquote(t, p.next().(wire.Results).Values[0]))
	p.send(1, `"third"`)
	at, _ := p.answered(2)
	require.ElementsMatch(t, []string{"1-1", "2-0"}, at)
}

func unquote(t *testing.T, raw []byte) (text string) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, &text))
	return text
}

func TestConcurrent_CleansUpWhenTheProcessEnds(t *testing.T) {
	p := start(t, "together.py:cleans")
	p.send(1, "0", "1")
	require.IsType(t, wire.ProgressReport{}, p.next())
	require.Eventually(t, func() bool { return strings.Contains(p.printed(), "both run") }, time.Minute, time.Millisecond)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 143, p.exit())
	require.Contains(t, p.printed(), "cleaned 0")
	require.Contains(t, p.printed(), "cleaned 1")
}

func TestConcurrent_RefusesAFunctionThatIsNotAsync(t *testing.T) {
	fault := greet(t, "broken", "sync_concurrent.py:f").next().(wire.Fault).Raised
	require.Equal(t, "TypeError", fault.Class)
	require.Equal(t, "gpumux.concurrent: f is no async function; write `async def`, or use gpumux.batch for lists of items", fault.Message)
}

func TestConcurrent_FilesOfEachItem(t *testing.T) {
	p := start(t, "together.py:saves")
	folder := t.TempDir()
	p.run++
	require.NoError(t, p.Write(wire.Run{Run: 1, Attempts: 1, Folder: folder,
		Items: []json.RawMessage{json.RawMessage(`"a"`), json.RawMessage(`"bad"`), json.RawMessage(`"c"`)}}))
	for range 3 {
		message := p.next()
		if fault, raised := message.(wire.Fault); raised {
			require.Equal(t, 1, fault.N)
			require.NoError(t, p.Write(wire.Next{}))
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
