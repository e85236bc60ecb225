package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/storetest"
)

// joiner is a Runner whose task joins two texts. That is associative, but the order
// matters.
type joiner struct {
	calls, pairs int
	odd          func(a, b string) *gpumux.Fault
	err          error
}

func (j *joiner) Run(_ context.Context, call Call, work calls.Work) error {
	j.calls++
	if j.err != nil {
		return j.err
	}
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		j.pairs++
		var pair [2]string
		if err := json.Unmarshal(item.Value, &pair); err != nil {
			return err
		}
		result := gpumux.Result{Index: item.Index}
		if j.odd != nil {
			result.Fault = j.odd(pair[0], pair[1])
		}
		if result.Fault == nil {
			result.Value, _ = json.Marshal(pair[0] + pair[1])
		}
		work.Done(Done{Result: result})
	}
	return nil
}

// lab runs activities with a store in memory.
type lab struct {
	t     *testing.T
	env   *testsuite.TestActivityEnvironment
	store *store.Store
	pool  *Pool
	light *Housekeeping
}

func newLab(t *testing.T, runner Runner) *lab {
	s, err := store.Open(t.Context(), "mem://")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	l := &lab{t: t, env: suite.NewTestActivityEnvironment(), store: s, pool: &Pool{Runner: runner, Store: s, Recorders: record.New(s)}, light: &Housekeeping{Store: s}}
	l.env.RegisterActivityWithOptions(checked(l.pool.reduce), activity.RegisterOptions{Name: "reduce"})
	return l
}

func (l *lab) reduce(reduce, output string) (contract.Reduced, error) {
	value, err := l.env.ExecuteActivity("reduce", contract.ReduceInput{Reduce: reduce, Output: output, Key: "m/reduced.json"})
	var out contract.Reduced
	if err == nil {
		require.NoError(l.t, value.Get(&out))
	}
	return out, err
}

// merged stores values as a results file. An empty text is a failed item.
func (l *lab) merged(values ...string) (output string) {
	var results []gpumux.Result
	for i, value := range values {
		r := gpumux.Result{Index: int64(i), Value: json.RawMessage(value)}
		if value == "" {
			r.Value, r.Fault = nil, &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: "m"}
		}
		results = append(results, r)
	}
	storetest.Write(l.t, l.store, "m/parts", results)
	in := contract.MergeInput{Parts: "m/parts", Output: "m/results.jsonl", Items: int64(len(values))}
	merged, err := l.store.Merge(l.t.Context(), in)
	require.NoError(l.t, err)
	return merged.Output
}

func TestReduce_TaskKeepsTheOrder(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 100, 1000} {
		var values []string
		want := ""
		for i := range n {
			if rand.IntN(5) == 0 {
				values = append(values, "")
				continue
			}
			text := fmt.Sprintf("%d ", i)
			want += text
			values = append(values, fmt.Sprintf("%q", text))
		}
		j := &joiner{}
		l := newLab(t, j)
		out, err := l.reduce("m:join", l.merged(values...))
		require.NoError(t, err)
		got := ""
		if want != "" {
			require.NoError(t, json.Unmarshal(out.Value, &got))
		} else {
			require.Equal(t, "null", string(out.Value))
		}
		require.Equal(t, want, got, n)
		require.Equal(t, max(0, len(strings.Fields(want))-1), j.pairs)
		require.LessOrEqual(t, j.calls, 2*9+2, "neighbours of a batch are combined in one call")
	}
}

func TestReduce_ALargeValueLiesInTheStore(t *testing.T) {
	l := newLab(t, &joiner{})
	var values []string
	for range 4 { // of which two fill a batch
		values = append(values, `"`+strings.Repeat("x", batchBytes/2)+`"`)
	}
	out, err := l.reduce("m:join", l.merged(values...))
	require.NoError(t, err)
	require.Empty(t, out.Value)
	body, err := l.store.Objects.Read(t.Context(), out.URL, 0, -1)
	require.NoError(t, err)
	defer body.Close()
	value, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Len(t, value, 2*batchBytes+2)
}

// A map in a workflow of its own has no store for a large value.
func TestReduce_ALargeValueWithoutAStore(t *testing.T) {
	for bytes, want := range map[int]string{gpumux.InlineBytes: "", 1 << 20: "more than the 1MiB that travel inline; run the map over a source"} {
		l := newLab(t, &joiner{})
		text := json.RawMessage(`"` + strings.Repeat("x", bytes/2) + `"`)
		encoded, err := l.env.ExecuteActivity("reduce", contract.ReduceInput{Reduce: "m:join", Results: []gpumux.Result{{Value: text}, {Index: 1, Value: text}}})
		if want != "" {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		var out contract.Reduced
		require.NoError(t, encoded.Get(&out))
		require.Len(t, out.Value, bytes+2)
	}
}

func TestReduce_FaultsOfATask(t *testing.T) {
	var app *temporal.ApplicationError
	values := []string{`"a"`, `"b"`, `"c"`, `"d"`}
	j := &joiner{odd: func(a, b string) *gpumux.Fault {
		if a == "c" {
			return &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: "no"}
		}
		return nil
	}}
	l := newLab(t, j)
	_, err := l.reduce("m:join", l.merged(values...))
	require.ErrorContains(t, err, "reduce m:join of items 2 to 2 with items 3 to 3: no")
	require.ErrorAs(t, err, &app)
	require.True(t, app.NonRetryable())

	l = newLab(t, &joiner{err: &gpumux.Fault{Kind: gpumux.FaultCrash, Message: "gone"}})
	_, err = l.reduce("m:join", l.merged(values...))
	require.ErrorAs(t, err, &app)
	require.False(t, app.NonRetryable(), "a death is tried again")

	l = newLab(t, &joiner{err: &gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Message: "no task"}})
	_, err = l.reduce("m:join", l.merged(values...))
	require.ErrorAs(t, err, &app)
	require.True(t, app.NonRetryable())

	plain := errors.New("the store is away")
	l = newLab(t, &joiner{err: plain})
	_, err = l.reduce("m:join", l.merged(values...))
	require.ErrorContains(t, err, plain.Error())
	_, err = l.reduce("m:join", "m/none.jsonl")
	require.ErrorContains(t, err, "read the values to reduce")
}
