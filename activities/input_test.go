package activities

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
)

// registry puts a queue's prefix before the names of activities.
type registry struct {
	lab    *lab
	prefix string
}

func (r registry) RegisterActivity(any) { panic("without a name") }
func (r registry) RegisterActivityWithOptions(f any, o activity.RegisterOptions) {
	o.Name = r.prefix + o.Name
	r.lab.env.RegisterActivityWithOptions(f, o)
}
func (r registry) RegisterDynamicActivity(any, activity.DynamicRegisterOptions) {
	panic("without a name")
}

// untouched is a Runner that nobody may ask for a slot.
type untouched struct{ t *testing.T }

func (u untouched) Run(context.Context, calls.Call, calls.Work) error {
	u.t.Error("a slot was asked for")
	return errors.New("asked")
}

// Wrong input from a client ends the activity at once, without a retry. It needs no slot
// and no memory.
func TestRegister_WhatCannotBeIsRefusedForGood(t *testing.T) {
	l := newLab(t, untouched{t})
	l.pool.Register(registry{l, "pool "})
	l.light.Register(registry{l, "light "})
	raw := func(encoding, data string) converter.RawValue {
		return converter.NewRawValue(&common.Payload{Metadata: map[string][]byte{"encoding": []byte(encoding)}, Data: []byte(data)})
	}
	for name, c := range map[string]struct {
		activity string
		args     []any
		want     string
	}{
		"endless chunk":   {"pool gpumux.RunChunk", []any{contract.Chunk{Range: &gpumux.Range{End: 1 << 40}, Work: contract.Whole(1 << 40), Parts: "m/parts"}}, "a chunk of 1099511627776 items; it has 1 to 65536"},
		"from nowhere":    {"pool gpumux.RunChunk", []any{contract.Chunk{Work: contract.Whole(3)}}, "give one of items, source, range and values"},
		"another's store": {"pool gpumux.RunChunk", []any{contract.Chunk{Range: &gpumux.Range{End: 3}, Work: contract.Whole(3), Parts: "../../etc"}}, "is not a key"},
		"a text":          {"pool gpumux.RunChunk", []any{"run this"}, "input: JSON string does not belong here"},
		"nothing":         {"pool gpumux.RunChunk", nil, "input: is missing; give one object"},
		"bytes":           {"pool gpumux.RunChunk", []any{[]byte(`{"start":0}`)}, `the encoding "binary/plain", which this worker does not read`},
		"broken JSON":     {"pool gpumux.RunChunk", []any{raw("json/plain", `{"start":`)}, "input: is not JSON"},
		"wrong types":     {"pool gpumux.RunChunk", []any{map[string]any{"start": "a", "end": 1.5}}, "end: JSON number 1.5 does not belong here"},
		"a path":          {"light gpumux.IndexSource", []any{contract.IndexInput{Source: "/etc/shadow.jsonl", Index: "x"}}, "is a path of a machine"},
	} {
		t.Run(name, func(t *testing.T) {
			l.t = t
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := l.env.ExecuteActivity(c.activity, c.args...)
			runtime.ReadMemStats(&after)
			require.ErrorContains(t, err, c.want)
			var refused *temporal.ApplicationError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, string(gpumux.FaultBadInput), refused.Type())
			require.True(t, refused.NonRetryable())
			require.NotRegexp(t, `json:|unmarshal|struct|int64`, err.Error())
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
		})
	}
}

// A heartbeat that another release left, or somebody else, costs repeated work and does
// no harm.
func TestRunChunk_StartsOverAfterAHeartbeatThatItCannotRead(t *testing.T) {
	for _, details := range []string{`"gone"`, `[]`, `{"peak":{"first":-99}}`, `{"hunt":9223372036854775807}`, `{"hunt":-1}`, `{"escalate":[20,1]}`} {
		l := newLab(t, echo{})
		l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
		l.env.SetHeartbeatDetails(json.RawMessage(details))
		value, err := l.env.ExecuteActivity("chunk", contract.Chunk{Range: &gpumux.Range{End: 20},
			Work: contract.Work{Runs: contract.Runs{{Start: 10, End: 20}}}})
		require.NoError(t, err, details)
		var result contract.ChunkResult
		require.NoError(t, value.Get(&result))
		require.EqualValues(t, 10, result.Covered, details)
		require.EqualValues(t, 10, result.Succeeded, details)
		require.Len(t, result.Results, 10, details)
	}
}
