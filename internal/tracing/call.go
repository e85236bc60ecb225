package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/gpumux/gpumux/internal/calls"
)

// Call is the span of a call in a slot. A nil Call records nothing.
type Call struct {
	ctx    context.Context
	span   trace.Span
	tracer trace.Tracer
}

// Begin begins the span of a call that has this slot, if ctx is traced.
func Begin(ctx context.Context, call calls.Call, slot, device string) *Call {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	c := &Call{tracer: trace.SpanFromContext(ctx).TracerProvider().Tracer(name)}
	c.ctx, c.span = c.tracer.Start(ctx, "slot", trace.WithAttributes(attribute.String("gpumux.map", call.Map),
		attribute.String("gpumux.task", call.Task), attribute.String("gpumux.slot", slot), attribute.String("gpumux.device", device)))
	return c
}

// Parent is the place of the call in its trace, for its process: a W3C traceparent.
func (c *Call) Parent() string {
	if c == nil {
		return ""
	}
	place := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(c.ctx, place)
	return place["traceparent"]
}

// Items gives each item of a sampled trace a span.
func (c *Call) Items(work calls.Work) calls.Work {
	if c == nil || !c.span.IsRecording() {
		return work
	}
	return traced{work, c}
}

type traced struct {
	calls.Work
	call *Call
}

func (t traced) Done(d calls.Done) {
	t.call.item(d)
	t.Work.Done(d)
}

func (c *Call) item(d calls.Done) {
	now := d.Ended
	if now.IsZero() {
		now = time.Now()
	}
	_, span := c.tracer.Start(c.ctx, "item", trace.WithTimestamp(now.Add(-d.Busy)), trace.WithAttributes(attribute.Int64("gpumux.index", d.Index)))
	if d.Fault != nil {
		span.SetStatus(codes.Error, string(d.Fault.Kind))
	}
	span.End(trace.WithTimestamp(now))
}

// End ends the span; kind is the kind of the fault that ended the call, or empty.
func (c *Call) End(kind string) {
	if c == nil {
		return
	}
	if kind != "" {
		c.span.SetStatus(codes.Error, kind)
	}
	c.span.End()
}
