package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

func TestMetrics_OfAWorkerThatRanAMap(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	port := programtest.FreePort(t)
	h.write("worker.yaml", h.file("worker.yaml")+fmt.Sprintf("metrics: \":%s\"\n", port))
	server := h.server()
	h.worker()
	h.run(0, "map", "step", "--range", "0:20", "--pool", "cpu", "--out", "r.jsonl")
	answer, err := http.Get("http://127.0.0.1:" + port + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	items := 0
	for slot := range 2 {
		var n int
		for line := range strings.Lines(string(text)) {
			if _, err := fmt.Sscanf(line, fmt.Sprintf(`gpumux_items_total{pool="cpu",slot="cpu/%d"} %%d`, slot), &n); err == nil {
				items += n
			}
		}
	}
	require.Equal(t, 20, items)
	require.Contains(t, string(text), "gpumux_item_seconds_count{pool=\"cpu\"} 20\n")
	require.Regexp(t, `(?m)^gpumux_device_free_bytes\{device="CPU",model="[^"]*"\} \d`, string(text))
	require.Regexp(t, `(?m)^gpumux_build_info\{go="go1[^"]*",version="[^"]+"\} 1$`, string(text))
	well := func() (code int, text string) {
		answer, err := http.Get("http://127.0.0.1:" + port + "/healthz")
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(body)
	}
	code, why := well()
	require.Equal(t, http.StatusOK, code, why)
	require.NoError(t, server.Process.Kill())
	rig.Wait(t, func() bool {
		code, why = well()
		return code == http.StatusServiceUnavailable
	}, time.Minute, 100*time.Millisecond)
	require.Regexp(t, `^the Temporal server has not answered within 2s: `, why)
	require.Regexp(t, `(?m)^temporal_activity_execution_latency_seconds_count\{[^}]*activity_type="gpumux.RunChunk"[^}]*\} [1-9]`, string(text))
}
