package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux/internal/tracing"
)

func TestStart_OffWithoutAnEndpoint(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	ctx, stop, err := exportTraces(t.Context(), "v", nil)
	require.NoError(t, err)
	stop()
	require.Equal(t, t.Context(), ctx)
	var o client.Options
	require.NoError(t, tracing.Apply(&o))
	require.Empty(t, o.Interceptors)
}

// A collector that does not take spans is told of once.
func TestStart_ACollectorThatRefuses(t *testing.T) {
	refuses := httptest.NewServer(http.NotFoundHandler())
	defer refuses.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", refuses.URL)
	t.Setenv("TRACEPARENT", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	var reported []error
	ctx, stop, err := exportTraces(t.Context(), "v", func(err error) { reported = append(reported, err) })
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef", trace.SpanContextFromContext(ctx).SpanID().String())
	var o client.Options
	require.NoError(t, tracing.Apply(&o))
	require.Len(t, o.Interceptors, 1)
	for range 2 {
		_, span := tracing.Provider().Tracer("").Start(ctx, "span")
		span.End()
	}
	stop()
	require.Len(t, reported, 1)
	require.ErrorContains(t, reported[0], "404")
	require.Nil(t, tracing.Provider())
}
