package tracing

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
)

// recording is a context with the span of a chunk, and what has ended.
func recording(t testing.TB, sampler sdktrace.Sampler) (context.Context, *tracetest.SpanRecorder) {
	ended := tracetest.NewSpanRecorder()
	p := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSpanProcessor(ended))
	ctx, _ := p.Tracer("").Start(t.Context(), "chunk")
	return ctx, ended
}

func TestBegin_SpansOfASlotAndItsItems(t *testing.T) {
	ctx, ended := recording(t, sdktrace.AlwaysSample())
	var results []int64
	call := calls.Call{Task: "t", Done: func(d calls.Done) { results = append(results, d.Index) }}
	c := Begin(ctx, &call, "cpu/0", "CPU")
	at := time.Unix(100, 0)
	call.Done(calls.Done{Result: gpumux.Result{Index: 7}, Busy: 3 * time.Second, Ended: at})
	call.Done(calls.Done{Result: gpumux.Result{Index: 8, Fault: &gpumux.Fault{Kind: gpumux.FaultCrash, Message: "marker"}}})
	c.End("crash")
	require.Equal(t, []int64{7, 8}, results)
	spans := ended.Ended()
	require.Len(t, spans, 3)
	slot := spans[2]
	require.Equal(t, "slot", slot.Name())
	require.Equal(t, ID(ctx), slot.SpanContext().TraceID().String())
	require.Equal(t, "00-"+ID(ctx)+"-"+slot.SpanContext().SpanID().String()+"-01", call.Trace)
	for _, item := range spans[:2] {
		require.Equal(t, slot.SpanContext().SpanID(), item.Parent().SpanID())
	}
	require.Equal(t, at.Add(-3*time.Second), spans[0].StartTime())
	require.Equal(t, at, spans[0].EndTime())
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "crash"}, spans[1].Status(), "no text of the task")
}

// A trace that is not sampled goes on to the process, and costs no span per item.
func TestBegin_NotSampled(t *testing.T) {
	ctx, ended := recording(t, sdktrace.NeverSample())
	call := calls.Call{}
	c := Begin(ctx, &call, "cpu/0", "CPU")
	require.Nil(t, call.Done)
	require.Regexp(t, "^00-"+ID(ctx)+"-[0-9a-f]{16}-00$", call.Trace)
	c.End("")
	require.Empty(t, ended.Ended())
}

func TestBegin_OffCostsNothing(t *testing.T) {
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		call := calls.Call{}
		Begin(ctx, &call, "cpu/0", "CPU").End("")
		if call.Trace != "" || ID(ctx) != "" {
			t.Error("a trace out of nowhere")
		}
	}))
}

// What an item costs in a slot without a trace, in one that is not sampled, and in one
// that is.
func BenchmarkItem(b *testing.B) {
	sampled, _ := recording(b, sdktrace.AlwaysSample())
	dropped, _ := recording(b, sdktrace.NeverSample())
	for name, ctx := range map[string]context.Context{"off": b.Context(), "dropped": dropped, "sampled": sampled} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			call := calls.Call{Done: func(calls.Done) {}}
			defer Begin(ctx, &call, "cpu/0", "CPU").End("")
			for b.Loop() {
				call.Done(calls.Done{})
			}
		})
	}
}
