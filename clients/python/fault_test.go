package python_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpumux/gpumux/internal/test/wiretest"
	"github.com/stretchr/testify/require"
)

func TestFault_TheProcessLivesOn(t *testing.T) {
	p := start(t, "faults.py:raises")
	items := []string{`"exit"`, `"interrupt"`, `"deep"`, `"memory"`, `"chained"`, `"value"`, `"group"`, `{"not json"`, "7"}
	got := p.Do(1, items...)
	for i, class := range []string{"SystemExit", "KeyboardInterrupt", "RecursionError", "MemoryError", "RuntimeError", "TypeError", "BaseException", "ValueError"} {
		require.NotNil(t, got[i].Fault, items[i])
		require.Equal(t, class, got[i].Fault.Class, items[i])
		require.Equal(t, 1, got[i].Attempts)
		require.NotContains(t, got[i].Fault.Traceback, filepath.Dir(runtime), "no frame of the runtime")
	}
	require.Equal(t, "7", got[8].Value)

	require.Equal(t, "the task called sys.exit(3); return a value or raise an exception instead", got[0].Fault.Message)
	require.Less(t, len(got[2].Fault.Traceback), 10000, "a deep recursion is folded")
	require.Equal(t, "KeyError", got[4].Fault.Chain[0].Class)
	require.Contains(t, got[4].Fault.Traceback, "The above exception was the direct cause")
	require.Contains(t, got[5].Fault.Message, "result.scores[1] is an object, which JSON cannot hold; return dict, list")
	require.Empty(t, got[5].Fault.Traceback)
	require.Empty(t, got[5].Fault.Chain)
	require.Contains(t, got[7].Fault.Message, "the item is not JSON")
	require.True(t, strings.HasPrefix(got[0].Fault.Traceback, "Traceback (most recent call last):\n  File \""), got[0].Fault.Traceback)
	require.Contains(t, strings.SplitN(got[0].Fault.Traceback, "\n", 3)[1], "faults.py")
}

func TestFault_OfAnAsyncFunction(t *testing.T) {
	p := start(t, "faults.py:raises_awaited")
	got := p.Do(1, `"exit"`, `"error"`, "7")
	require.Equal(t, "SystemExit", got[0].Fault.Class)
	require.Equal(t, "awaited", got[1].Fault.Message)
	require.Contains(t, strings.SplitN(got[1].Fault.Traceback, "\n", 3)[1], "faults.py", "no frame of asyncio before the task's")
	require.Equal(t, "7", got[2].Value)
}

func TestFault_Attempts(t *testing.T) {
	p := start(t, "faults.py:flaky")
	got := p.Do(3, "1", "3", "5")
	require.Equal(t, wiretest.Answer{Value: "1", Attempts: 1}, got[0])
	require.Equal(t, wiretest.Answer{Value: "3", Attempts: 3}, got[1])
	require.Equal(t, 3, got[2].Attempts)
	require.Equal(t, "try 3", got[2].Fault.Message)
	require.Empty(t, got[2].Fault.Chain, "earlier tries are not its cause")
}

func TestFault_TriesOnlyAfterWhatRetryOnNames(t *testing.T) {
	for _, target := range []string{"faults.py:flaky", "faults.py:flaky_batch", "together.py:flaky"} {
		p := start(t, target)
		p.RetryOn = []string{"LookupError"}
		got := p.Do(3, "3")[0]
		require.Equal(t, "try 1", got.Fault.Message, target)
		require.Equal(t, []any{1, true}, []any{got.Attempts, got.Final}, target)
		p.RetryOn = append(p.RetryOn, "ArithmeticError")
		require.Equal(t, wiretest.Answer{Value: "4", Attempts: 4}, p.Do(4, "4")[0], target)
		got = p.Do(2, "5")[0]
		require.Equal(t, []any{2, false}, []any{got.Attempts, got.Final}, target)
	}
}

func TestFault_NothingOfAnItemIsKept(t *testing.T) {
	p := start(t, "faults.py:keeps")
	got := p.Do(2, "1", `"count"`, `"raise"`, `"count"`, "2", `"count"`)
	for _, i := range []int{1, 3, 5} {
		require.Equal(t, "0", got[i].Value, "arrays that outlive their item")
	}
}

func TestBatch_HalvesWhenTheDeviceIsFull(t *testing.T) {
	p := start(t, "faults.py:tight")
	items := make([]string, 16)
	for i := range items {
		items[i] = "1"
	}
	for i, a := range p.Do(1, items...) {
		require.Nil(t, a.Fault, "item %d", i)
		require.Equal(t, "0", a.Value, "arrays of the call that failed are gone before the next")
	}
	// 16 and 8 and 4 are too many; four good calls of two later it tries three, and that
	// fits.
	require.Equal(t, "[16,8,4,2,2,2,2,3,3,2]", p.Values(`"calls"`)[0])

	// It grows on, to four, which fails and costs more patience from then on.
	for range 2 {
		p.Values(items...)
	}
	calls := p.Values(`"calls"`)[0]
	require.Contains(t, calls, ",4,2", "grew, failed, halved: %s", calls)
	require.LessOrEqual(t, strings.Count(calls, ",4"), 2, calls)
}

func TestBatch_OneItemThatDoesNotFitIsItsFault(t *testing.T) {
	p := start(t, "faults.py:never")
	for _, a := range p.Do(2, "1", "2", "3") {
		require.Equal(t, "torch.OutOfMemoryError", a.Fault.Class)
		require.Equal(t, "CUDA out of memory. Tried to allocate 2.00 GiB.", a.Fault.Message)
		require.Equal(t, 2, a.Attempts)
	}
}

func TestBatch_OnlyTheGuiltyItemFails(t *testing.T) {
	p := start(t, "faults.py:guilty")
	got := p.Do(1, "1", `"bad"`, "3", "4", "5", `"odd"`, "7")
	for i, want := range []string{"1", "", "3", "4", "5", "", "7"} {
		require.Equal(t, want, got[i].Value)
		require.Equal(t, want == "", got[i].Fault != nil)
	}
	require.Equal(t, "bad item", got[1].Fault.Message)
	require.Empty(t, got[1].Fault.Chain)
	require.Contains(t, got[5].Fault.Message, "result is an object, which JSON cannot hold")
}

func TestBatch_ValuesAreCounted(t *testing.T) {
	p := start(t, "faults.py:short")
	got := p.Do(1, "1", "2")
	require.Equal(t, "1", got[0].Value, "alone it does what it should")
	require.Equal(t, "2", got[1].Value)
}
