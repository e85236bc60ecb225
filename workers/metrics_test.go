package workers

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux/gpu"
)

// serving serves the metrics and returns where.
func serving(t *testing.T, m *metrics, devices []gpu.Device, inventory driver) string {
	t.Helper()
	url, err := m.Serve("127.0.0.1:0", devices, inventory)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Stop(context.Background())) })
	return url
}

// answered is the answer to one scrape.
func answered(t *testing.T, url string) (code int, text string) {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

// The SDK tags one name differently in different places.
func TestMetrics_OfTheSDK(t *testing.T) {
	m := newMetrics(zap.NewNop(), "", nil, nil)
	url := serving(t, m, nil, nil)
	for range 3 {
		m.sdk.WithTags(map[string]string{"a": "1"}).Counter("temporal_request").Inc(1)
	}
	m.sdk.WithTags(map[string]string{"a": "1"}).WithTags(map[string]string{"a": "2", "b": "x"}).Counter("temporal_request").Inc(5)
	m.sdk.Gauge("temporal_pollers").Update(7)
	m.sdk.Gauge("temporal_pollers").Update(2)
	for _, took := range []time.Duration{200 * time.Microsecond, 20 * time.Millisecond, time.Hour} {
		m.sdk.Timer("temporal_latency").Record(took)
	}
	code, text := answered(t, url)
	require.Equal(t, http.StatusOK, code, "%s", text)
	for _, line := range []string{
		`temporal_request_total{a="1"} 3`, `temporal_request_total{a="2",b="x"} 5`, `temporal_pollers 2`,
		`temporal_latency_seconds_bucket{le="0.001"} 1`, `temporal_latency_seconds_bucket{le="0.05"} 2`,
		`temporal_latency_seconds_bucket{le="600"} 2`, `temporal_latency_seconds_bucket{le="+Inf"} 3`, `temporal_latency_seconds_count 3`,
		`temporal_latency_seconds_sum 3600.0202`,
	} {
		require.Contains(t, text, line+"\n")
	}
}

// An address that somebody has is named, with what to do.
func TestMetrics_AnAddressThatIsTaken(t *testing.T) {
	m := newMetrics(zap.NewNop(), "", nil, nil)
	serving(t, m, nil, nil)
	_, err := newMetrics(zap.NewNop(), "", nil, nil).Serve(m.server.Addr, nil, nil)
	require.ErrorContains(t, err, "set metrics to a free address, or leave it out")
}
