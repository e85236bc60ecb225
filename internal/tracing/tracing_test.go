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

// listing is work that lists the indices of its results.
type listing struct {
	calls.Single
	results []int64
}

func (l *listing) Done(d calls.Done) { l.results = append(l.results, d.Index) }

func TestBegin_SpansOfASlotAndItsItems(t *testing.T) {
	ctx, ended := recording(t, sdktrace.AlwaysSample())
	c := Begin(ctx, calls.Call{Task: "t"}, "cpu/0", "CPU")
	var list listing
	work := c.Items(&list)
	at := time.Unix(100, 0)
	work.Done(calls.Done{Result: gpumux.Result{Index: 7}, Busy: 3 * time.Second, Ended: at})
	work.Done(calls.Done{Result: gpumux.Result{Index: 8, Fault: &gpumux.Fault{Kind: gpumux.FaultCrash, Message: "marker"}}})
	c.End("crash")
	require.Equal(t, []int64{7, 8}, list.results)
	spans := ended.Ended()
	require.Len(t, spans, 3)
	slot := spans[2]
	require.Equal(t, "slot", slot.Name())
	require.Equal(t, ID(ctx), slot.SpanContext().TraceID().String())
	require.Equal(t, "00-"+ID(ctx)+"-"+slot.SpanContext().SpanID().String()+"-01", c.Parent())
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
	c := Begin(ctx, calls.Call{}, "cpu/0", "CPU")
	require.Nil(t, c.Items(nil))
	require.Regexp(t, "^00-"+ID(ctx)+"-[0-9a-f]{16}-00$", c.Parent())
	c.End("")
	require.Empty(t, ended.Ended())
}

func TestBegin_OffCostsNothing(t *testing.T) {
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c := Begin(ctx, calls.Call{}, "cpu/0", "CPU")
		c.End("")
		if c.Parent() != "" || ID(ctx) != "" {
			t.Error("a trace out of nowhere")
		}
	}))
}
