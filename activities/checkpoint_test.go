package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
)

// mortal is a joiner whose process dies once it has combined so many pairs.
type mortal struct {
	joiner
	after int
}

func (m *mortal) Run(ctx context.Context, call Call) error {
	if m.after > 0 && m.pairs >= m.after {
		return &gpumux.Fault{Kind: gpumux.Crash, Op: "run", Message: "gone"}
	}
	return m.joiner.Run(ctx, call)
}

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
			runner := &mortal{after: 4 * blockItems}
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
				there, err := l.store.Exists(t.Context(), c.Key)
				require.NoError(t, err)
				require.False(t, there, "nothing of it stays")
			}
			require.Less(t, runner.pairs-before, n-int(c.Next)+64, "only what came behind was combined again")
		})
	}
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
