package metrics

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
)

// showing serves the metrics and returns what a scrape finds.
func showing(t *testing.T, m *Metrics, inventory *gpu.Inventory) func() string {
	t.Helper()
	url := serving(t, m, inventory.Devices(), inventory.Status)
	return func() string {
		code, text := answered(t, url)
		require.Equal(t, http.StatusOK, code, "%s", text)
		return text
	}
}

// serving serves the metrics and returns where.
func serving(t *testing.T, m *Metrics, devices []gpu.Device, status func(string) (gpu.Status, error)) string {
	t.Helper()
	url, err := m.Serve("127.0.0.1:0", devices, status)
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

// A driver that does not answer holds up scrapes, up to a few and for a while, and no
// slot that counts a fault.
func TestMetrics_ADriverThatHangs(t *testing.T) {
	m := New(zap.NewNop(), "", nil)
	m.limit = 20 * time.Millisecond
	asked, answer := make(chan struct{}, 2*maxScrapes), make(chan struct{})
	defer close(answer)
	url := serving(t, m, []gpu.Device{{UUID: "GPU-1"}}, func(string) (gpu.Status, error) {
		asked <- struct{}{}
		<-answer
		return gpu.Status{}, nil
	})
	for range maxScrapes {
		code, text := answered(t, url)
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Contains(t, text, "configured timeout")
		<-asked
		counted := make(chan struct{})
		go func() { m.Fault("cpu", gpumux.Crash); close(counted) }()
		select {
		case <-counted:
		case <-time.After(time.Minute):
			t.Fatal("a fault waits for the driver")
		}
	}
	code, text := answered(t, url)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, text, "Limit of concurrent requests reached")
	require.Empty(t, asked, "the driver is not asked again")
}

// An address that somebody has is named, with what to do.
func TestMetrics_AnAddressThatIsTaken(t *testing.T) {
	m := New(zap.NewNop(), "", nil)
	inventory, err := gpu.Open(gpu.Options{NoNVML: true})
	require.NoError(t, err)
	showing(t, m, inventory)
	_, err = New(zap.NewNop(), "", nil).Serve(m.server.Addr, nil, nil)
	require.ErrorContains(t, err, "set metrics to a free address, or leave it out")
}
