// Package tracing makes the OpenTelemetry spans of a map: client, workflow, chunk, slot
// and item.
//
// It owns when there is a span, and what it is called and says: never a part of an item.
// It exports nothing. Where nobody has called Use it makes nothing, and it has nothing to
// stop.
package tracing

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux/internal/contract"
)

const name = "github.com/gpumux/gpumux"

var used atomic.Pointer[trace.TracerProvider]

// Use makes p take the spans of clients and workers that start from now on; nil: nobody.
func Use(p trace.TracerProvider) {
	if p == nil {
		used.Store(nil)
		return
	}
	used.Store(&p)
}

// Provider is who takes spans; nil: nobody.
func Provider() trace.TracerProvider {
	if p := used.Load(); p != nil {
		return *p
	}
	return nil
}

// questions begin no trace: they are asked many times.
var questions = []string{":" + contract.DescribeWorker, ":" + contract.DescribeWorkflow, ":" + contract.ReadOutput}

// Apply traces a client and the workers on it.
func Apply(o *client.Options) error {
	to := Provider()
	if to == nil {
		return nil
	}
	made, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{
		Tracer: to.Tracer(name), DisableSignalTracing: true, DisableQueryTracing: true, DisableUpdateTracing: true,
		AllowInvalidParentSpans: true,
		SpanStarter: func(ctx context.Context, t trace.Tracer, span string, opts ...trace.SpanStartOption) trace.Span {
			for _, question := range questions {
				if strings.HasSuffix(span, question) && !trace.SpanContextFromContext(ctx).IsValid() {
					return trace.SpanFromContext(ctx) // one that records nothing
				}
			}
			_, started := t.Start(ctx, span, opts...)
			return quiet{started}
		},
	})
	if err == nil {
		o.Interceptors = append(o.Interceptors, made)
	}
	return err
}

// quiet is a span without texts of errors: those of faults may hold parts of items.
type quiet struct{ trace.Span }

// RecordError keeps the kind of a fault.
func (q quiet) RecordError(err error, _ ...trace.EventOption) {
	if fault, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		q.SetAttributes(attribute.String("gpumux.fault", fault.Type()))
	}
}

func (q quiet) SetStatus(code codes.Code, _ string) { q.Span.SetStatus(code, "") }

// ID is the trace of ctx, or empty.
func ID(ctx context.Context) string {
	if at := trace.SpanContextFromContext(ctx); at.HasTraceID() {
		return at.TraceID().String()
	}
	return ""
}
