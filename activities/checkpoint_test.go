package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux"
)

// mortal is a joiner whose process dies once it has combined so many pairs.
type mortal struct {
	joiner
	after int
	die   func() error
}

func (m *mortal) Run(ctx context.Context, call Call) error {
	if m.after > 0 && m.pairs >= m.after {
		return m.die()
	}
	return m.joiner.Run(ctx, call)
}

func crash() error { return &gpumux.Fault{Kind: gpumux.Crash, Op: "run", Message: "gone"} }

// A stretch of a reduce whose worker dies goes on behind what it had combined, whether that fits a heartbeat or not.
func TestReduce_AStretchGoesOnWhereItWas(t *testing.T) {
	for _, width := range []int{1, 40} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			const n = 8*blockItems + 77
			var values []string
			want := ""
			for i := range n {
				if i%10 == 3 {
					values = append(values, "") // a failed item
					continue
				}
				text := strings.Repeat(string(rune('a'+i%26)), width)
				values = append(values, `"`+text+`"`)
				want += text
			}
			runner := &mortal{after: 4 * blockItems, die: crash}
			l := newLab(t, runner)
			src := l.merged(values)
			var left converter.EncodedValues
			l.env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
				if details.HasValues() {
					left = details
				}
			})
			in := gpumux.ReduceInput{Reduce: "join", Source: src, Span: gpumux.Span{End: n}}
			_, err := l.reduce(in)
			require.ErrorContains(t, err, "gone")
			require.NotNil(t, left)
			var c checkpoint
			require.NoError(t, left.Get(&c))
			require.Greater(t, c.Next, int64(blockItems))
			require.Equal(t, width == 1, c.Key == "")
			before := runner.pairs
			unnamed := path.Dir(c.Key) + "/000000009999.json" // of an attempt that was killed before it could tell of it
			if c.Key != "" {
				l.put(unnamed)
			}

			runner.after = 0
			l.env.SetHeartbeatDetails(c)
			in.Final = true
			out, err := l.reduce(in)
			require.NoError(t, err)
			var text string
			if out.Key != "" {
				out.Value, err = (&reducer{ctx: t.Context(), store: l.store}).load(out)
				require.NoError(t, err)
			}
			require.NoError(t, json.Unmarshal(out.Value, &text))
			require.Equal(t, want, text)
			require.EqualValues(t, n-n/10, out.Count)
			if c.Key != "" {
				require.False(t, l.has(c.Key), "nothing of it stays")
				require.False(t, l.has(unnamed))
			}
			require.Less(t, runner.pairs-before, n-int(c.Next)+64, "only what came behind was combined again")
		})
	}
}

// Nothing stays in the store of a stretch that nobody tries again.
func TestReduce_AStretchThatEndsForGoodLeavesNothing(t *testing.T) {
	for name, last := range map[string]struct {
		end  error
		here bool // the state stays, for the next attempt
	}{
		"fault": {end: &gpumux.Fault{Kind: gpumux.TaskError, Op: "run", Message: "gone"}}, "crash": {end: crash(), here: true},
		"canceled": {end: temporal.NewCanceledError()}, "shutdown": {end: worker.ErrWorkerShutdown, here: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			runner := &mortal{after: blockItems - 1, die: func() error {
				if !errors.As(last.end, new(*gpumux.Fault)) {
					cancel(last.end)
				}
				return last.end
			}}
			l := newLab(t, runner)
			l.env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
			var c checkpoint
			l.env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
				if details.HasValues() {
					require.NoError(t, details.Get(&c))
				}
			})
			value := `"` + strings.Repeat("x", 40) + `"`
			src := l.merged(slices.Repeat([]string{value}, 3*blockItems))
			_, err := l.reduce(gpumux.ReduceInput{Reduce: "join", Source: src, Span: gpumux.Span{End: src.Items}})
			require.Error(t, err)
			require.NotEmpty(t, c.Key)
			require.Equal(t, last.here, l.has(c.Key))
		})
	}
}

// While a stretch runs, only the states stay that a heartbeat may still name.
func TestKeeper_DropsOldStates(t *testing.T) {
	l := newLab(t, nil)
	now := time.Now()
	in := gpumux.ReduceInput{Folder: "m/reduce", Span: gpumux.Span{Start: 100, End: 200}}
	k := &keeper{r: &reducer{ctx: t.Context(), store: l.store, in: in}, clock: func() time.Time { return now }}
	var keys []string
	write := func(after time.Duration) {
		now = now.Add(after)
		c := &checkpoint{Next: 101 + int64(len(keys)), Stack: []rest{{Value: json.RawMessage(`"x"`)}}}
		require.NoError(t, k.write(c))
		keys = append(keys, c.Key)
	}
	there := func() (list []bool) {
		for _, key := range keys {
			list = append(list, l.has(key))
		}
		return list
	}
	write(0)
	write(time.Minute)
	require.Equal(t, []bool{true, true}, there(), "the server may not know of the second yet")
	write(stateAge / 2)
	require.Equal(t, []bool{true, true, true}, there())
	write(stateAge/2 + 1)
	require.Equal(t, []bool{false, true, true, true}, there())
	write(time.Minute)
	require.Equal(t, []bool{false, false, false, true, true}, there())
}

func (l *lab) has(key string) bool {
	there, err := l.store.Exists(l.t.Context(), key)
	require.NoError(l.t, err)
	return there
}

func (l *lab) put(key string) {
	w, err := l.store.Create(l.t.Context(), key)
	require.NoError(l.t, err)
	defer w.Abort()
	_, err = w.Write([]byte("[]"))
	require.NoError(l.t, err)
	require.NoError(l.t, w.Close())
}

func TestReduce_AnUnreadableCheckpointStartsOver(t *testing.T) {
	l := newLab(t, &joiner{})
	src := l.merged([]string{`"a"`, `"b"`, `"c"`})
	for _, c := range []checkpoint{{Next: 2, Key: "m/reduce/none"}, {Next: 9}} {
		l.env.SetHeartbeatDetails(c)
		out, err := l.reduce(gpumux.ReduceInput{Reduce: "join", Source: src, Span: gpumux.Span{End: 3}})
		require.NoError(t, err)
		require.Equal(t, `"abc"`, string(out.Value))
		require.EqualValues(t, 3, out.Count)
	}
}
