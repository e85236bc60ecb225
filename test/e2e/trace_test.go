package e2e

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const tracedPy = `
import os
def where(i):
    if i == 2: raise ValueError("marker")
    return os.environ["TRACEPARENT"]
`

// collector keeps the spans that it is sent, as an OpenTelemetry collector does.
type collector struct {
	url   string
	mu    sync.Mutex
	spans map[string]*tracepb.Span // by ID
}

func newCollector(t *testing.T) *collector {
	c := &collector{spans: map[string]*tracepb.Span{}}
	server := httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var sent collectorpb.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &sent) != nil {
			http.Error(to, "no spans", http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range sent.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					c.spans[hex.EncodeToString(span.GetSpanId())] = span
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// way is the names of a span and of those above it, and the parent of the last one.
func (c *collector) way(span *tracepb.Span) (names []string, root string) {
	for span != nil {
		names, root = append(names, span.GetName()), hex.EncodeToString(span.GetParentSpanId())
		span = c.spans[root]
	}
	return names, root
}

// A map is one trace, from the program that started the client down to each item. The
// task, and the worker's log, know their place in it. No span has a text of the task.
func TestTrace_FromTheClientToTheItem(t *testing.T) {
	t.Parallel()
	const trace, parent = "0123456789abcdef0123456789abcdef", "0123456789abcdef"
	h := newHost(t)
	c := newCollector(t)
	h.write("traced.py", tracedPy)
	h.write("worker.yaml", fmt.Sprintf("store: file://%s\npools: [{name: cpu, devices: cpu}]\n", h.path("store"))+
		"tasks: {where: {python: \"traced.py:where\"}, shell: {command: [sh, -c, 'echo \"\\\"$TRACEPARENT\\\"\"']}}\n")
	h.env = append(h.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.url)
	w := h.worker()
	h.env = append(h.env, fmt.Sprintf("TRACEPARENT=00-%s-%s-01", trace, parent))
	h.run(1, "map", "where", "--range", "0:3", "--pool", "cpu", "--option", "chunk=3", "--out", "r.jsonl")
	h.run(0, "map", "shell", "--range", "0:1", "--pool", "cpu", "--out", "s.jsonl")
	require.NoError(t, w.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, w.code(), w.stderr.String())
	require.Contains(t, w.stderr.String(), `"trace":"`+trace+`"`)

	c.mu.Lock()
	defer c.mu.Unlock()
	slots := map[string]int{}
	for _, span := range c.spans {
		require.NotContains(t, span.String(), "marker")
		if hex.EncodeToString(span.GetTraceId()) != trace || span.GetName() != "item" {
			continue
		}
		names, root := c.way(span)
		require.Equal(t, "item slot RunActivity:gpumux.RunChunk StartActivity:gpumux.RunChunk RunWorkflow:gpumux.Map StartWorkflow:gpumux.Map",
			strings.Join(names, " "))
		require.Equal(t, parent, root)
		require.GreaterOrEqual(t, span.GetEndTimeUnixNano(), span.GetStartTimeUnixNano())
		slots[fmt.Sprintf("00-%s-%x-01", trace, span.GetParentSpanId())]++
	}
	var places []string
	for _, line := range slices.Concat(h.lines(h.file("r.jsonl"))[:2], h.lines(h.file("s.jsonl"))) {
		var place string
		require.NoError(t, json.Unmarshal(line["value"], &place))
		places = append(places, place)
	}
	require.Equal(t, map[string]int{places[0]: 3, places[2]: 1}, slots)
	require.Equal(t, places[0], places[1])
}
