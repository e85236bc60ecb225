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
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/store"
)

// joiner is a Runner whose task joins two texts. That is associative, but the order
// matters.
type joiner struct {
	calls, pairs int
	odd          func(a, b string) *gpumux.Fault
	err          error
}

func (j *joiner) Run(_ context.Context, call Call) error {
	j.calls++
	if j.err != nil {
		return j.err
	}
	for item, err := range call.Items {
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
		call.Done(Done{Result: result})
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
	s, err := store.Open(t.Context(), "mem://", nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	l := &lab{t: t, env: suite.NewTestActivityEnvironment(), store: s, pool: &Pool{Runner: runner, Store: s, Recorders: record.New(s)}, light: &Housekeeping{Store: s}}
	l.env.RegisterActivityWithOptions(l.pool.Reduce, activity.RegisterOptions{Name: "task"})
	l.env.RegisterActivityWithOptions(l.light.Reduce, activity.RegisterOptions{Name: "own"})
	return l
}

func (l *lab) reduce(reduce, output string) (contract.Reduced, error) {
	in := contract.ReduceInput{Reduce: reduce, Output: output, Key: "m/reduced.json"}
	f := "task"
	if contract.OwnReduce(in.Reduce) {
		f = "own"
	}
	value, err := l.env.ExecuteActivity(f, in)
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
	require.NoError(l.t, l.store.WritePart(l.t.Context(), "m/parts", results))
	in := contract.MergeInput{Parts: "m/parts", Output: "m/results.jsonl", Items: int64(len(values))}
	merged, err := l.store.Merge(l.t.Context(), in)
	require.NoError(l.t, err)
	return merged.Output
}

func TestReduce_Numbers(t *testing.T) {
	huge := "1" + strings.Repeat("0", 30)
	for _, c := range []struct{ values, sum, mean, least, greatest, count string }{
		{"", "0", "null", "null", "null", "0"},
		{"7", "7", "7.0", "7", "7", "1"},
		{"1 2 4", "7", "2.3333333333333335", "1", "4", "3"},
		{"-3 - 5 -", "2", "1.0", "-3", "5", "2"}, // - is a failed item
		{"1 2.0", "3.0", "1.5", "1", "2.0", "2"},
		{"2.0 2 2e0", "6.0", "2.0", "2.0", "2.0", "3"},
		{"9223372036854775807 1", "9223372036854775808", "4611686018427387904.0", "1", "9223372036854775807", "2"},
		{"-9223372036854775808 -1 0", "-9223372036854775809", "-3074457345618258603.0", "-9223372036854775808", "0", "3"},
		{huge + " 1 -" + huge, "1", "0.3333333333333333", "-" + huge, huge, "3"},
		{"1e100 1.0 -1e100", "1.0", "0.3333333333333333", "-1e100", "1e100", "3"},
		{"0.1 0.2 0.3 0.4", "1.0", "0.25", "0.1", "0.4", "4"},
		{"1e16 1.5 1.5 1.5 1.5", "10000000000000006.0", "2000000000000001.2", "1.5", "1e16", "5"},
		{"1.5 " + text.Infinity + " 2", text.Infinity, text.Infinity, "1.5", text.Infinity, "3"},
		{text.MinusInfinity + " 1", text.MinusInfinity, text.MinusInfinity, text.MinusInfinity, "1", "2"},
		{text.Infinity + " " + text.MinusInfinity, text.NaN, text.NaN, text.MinusInfinity, text.Infinity, "2"},
		{"1 " + text.NaN + " 1e308 1e308", text.NaN, text.NaN, text.NaN, text.NaN, "4"},
		{"9007199254740993 9007199254740992.0", "18014398509481984.0", "9007199254740992.0", "9007199254740992.0", "9007199254740993", "2"},
	} {
		var values []string
		for _, v := range strings.Fields(c.values) {
			values = append(values, strings.TrimSuffix(v, "-"))
		}
		for reduce, want := range map[string]string{gpumux.ReduceSum: c.sum, gpumux.ReduceMean: c.mean, gpumux.ReduceMin: c.least,
			gpumux.ReduceMax: c.greatest, gpumux.ReduceCount: c.count} {
			l := newLab(t, nil)
			out, err := l.reduce(reduce, l.merged(append(values, "")...)) // a part needs at least one item
			require.NoError(t, err)
			if reduce == gpumux.ReduceMean && want != "null" && want[0] != '"' {
				var f, wanted float64
				require.NoError(t, json.Unmarshal([]byte(want), &wanted))
				require.NoError(t, json.Unmarshal(out.Value, &f))
				require.Equal(t, wanted, f, "mean of %s", c.values)
				require.True(t, strings.ContainsAny(string(out.Value), ".e"), "a mean is a float: %s", out.Value)
				continue
			}
			require.Equal(t, want, string(out.Value), "%s of %s", reduce, c.values)
		}
	}
}

func TestReduce_NumbersNameTheItemThatIsNone(t *testing.T) {
	for value, want := range map[string]string{
		`"3"`: `reduce sum at item 2, whose value is "3": it takes numbers`, "true": "item 2", "null": "item 2", "[1]": "item 2",
		"1e999": "item 2, whose value is 1e999: the number does not fit a 64-bit float",
	} {
		l := newLab(t, nil)
		_, err := l.reduce(gpumux.ReduceSum, l.merged("1", "", value, "4"))
		require.ErrorContains(t, err, want)
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		require.True(t, app.NonRetryable())
	}
	l := newLab(t, nil)
	out, err := l.reduce(gpumux.ReduceCount, l.merged(`"x"`, "", "null"))
	require.NoError(t, err)
	require.Equal(t, "2", string(out.Value), "count takes any value")
	_, err = l.reduce(gpumux.ReduceSum, "m/none.jsonl")
	require.ErrorContains(t, err, "read the values to reduce")
	l = newLab(t, nil)
	_, err = l.reduce(gpumux.ReduceSum, l.merged("1e308", "1e308"))
	require.ErrorContains(t, err, "the sum does not fit a 64-bit float")
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
	for range 40 {
		values = append(values, `"`+strings.Repeat("x", 1<<20)+`"`)
	}
	out, err := l.reduce("m:join", l.merged(values...))
	require.NoError(t, err)
	require.Empty(t, out.Value)
	body, err := l.store.Objects.Read(t.Context(), out.URL, 0, -1)
	require.NoError(t, err)
	defer body.Close()
	value, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Len(t, value, 40<<20+2)
}

// A map in a workflow of its own has no store for a large value.
func TestReduce_ALargeValueWithoutAStore(t *testing.T) {
	for bytes, want := range map[int]string{gpumux.InlineBytes: "", 1 << 20: "more than the 1MiB that travel inline; run the map over a source"} {
		l := newLab(t, &joiner{})
		text := json.RawMessage(`"` + strings.Repeat("x", bytes/2) + `"`)
		encoded, err := l.env.ExecuteActivity("task", contract.ReduceInput{Reduce: "m:join", Results: []gpumux.Result{{Value: text}, {Index: 1, Value: text}}})
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
}
