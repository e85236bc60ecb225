package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/gpumux/gpumux/internal/tracing"
)

const lastSpans = 3 * time.Second

func tracesWanted() bool {
	set := func(name string) bool { return os.Getenv(name) != "" }
	return (set("OTEL_EXPORTER_OTLP_ENDPOINT") || set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")) &&
		!strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") && os.Getenv("OTEL_TRACES_EXPORTER") != "none"
}

// exportTraces exports spans until stop, which waits for the last of them. Report gets the first
// error of the exporter. The context that it returns has the parent of TRACEPARENT, if a
// traced program started this one.
func exportTraces(ctx context.Context, version string, report func(error)) (traced context.Context, stop func(), err error) {
	if !tracesWanted() {
		return ctx, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return ctx, nil, fmt.Errorf("export traces: %w; check the OTEL_EXPORTER_OTLP_ variables", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "gpumux"),
		attribute.String("service.version", version)), resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return ctx, nil, fmt.Errorf("export traces: %w; check OTEL_RESOURCE_ATTRIBUTES", err)
	}
	var once sync.Once
	tell := func(err error) { once.Do(func() { report(err) }) }
	otel.SetErrorHandler(otel.ErrorHandlerFunc(tell))
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	tracing.Use(provider)
	parent := propagation.MapCarrier{"traceparent": os.Getenv("TRACEPARENT"), "tracestate": os.Getenv("TRACESTATE")}
	return propagation.TraceContext{}.Extract(ctx, parent), func() {
		tracing.Use(nil)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
		defer cancel()
		if err := provider.Shutdown(last); err != nil {
			tell(err)
		}
	}, nil
}
