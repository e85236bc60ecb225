//go:build linux

package clustercheck

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

// Prometheus scrapes workers and Temporal, and answers every query of the dashboard.
func TestMetrics(t *testing.T) {
	inCluster(t)
	began := time.Now()
	workers(t)
	targets := []string{at(atWorkers) + ":9464", at(atWorkers+1) + ":9464"}
	for host := atFrontend; host <= atWorker; host++ {
		targets = append(targets, at(host)+":9090")
	}
	config, err := json.Marshal(map[string]any{"global": map[string]any{"scrape_interval": "1s"}, "scrape_configs": []any{
		map[string]any{"job_name": "cluster", "static_configs": []any{map[string]any{"targets": targets}}}}})
	require.NoError(t, err)
	file := filepath.Join(c.dir, "prometheus.yml") // JSON is YAML
	require.NoError(t, os.WriteFile(file, config, 0o644))
	program, err := exec.LookPath("prometheus")
	if err != nil {
		program = filepath.Join(c.folder, "debian/usr/bin/prometheus")
	}
	p := c.add(&process{name: "prometheus", ready: speaks("http://" + at(atPrometheus) + ":9090/-/ready"), argv: []string{program,
		"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(c.dir, "prometheus"), "--web.listen-address=" + at(atPrometheus) + ":9090"}})
	require.NoError(t, p.start())
	defer func() { require.NoError(t, p.end(p.asked())) }()

	in("default", "main").run(t, 1, "map", "odd", "--range", "0:20", "--pool", "cpu", "--id", "faulty", "--out", filepath.Join(c.dir, "faulty.jsonl"))
	judge(t, "a map under scrapes", 0, "", (&job{site: in("default", "main"), items: 60, seconds: 0.1, pool: "cpu"}).begin(t, "scraped"))

	data, err := os.ReadFile(filepath.Join(top, "deploy/grafana/workers.json"))
	require.NoError(t, err)
	var dashboard any
	require.NoError(t, json.Unmarshal(data, &dashboard))
	all := queries(dashboard)
	asked := slices.DeleteFunc(slices.Clone(all), func(query string) bool { return strings.Contains(query, "gpumux_device_") })
	for _, query := range append(asked, "service_requests", "approximate_backlog_count") {
		query = strings.NewReplacer("$__rate_interval", "30s", "$pool", ".*").Replace(query)
		rig.Wait(t, func() bool { return series(t, query) > 0 }, patience, 200*time.Millisecond, "%s has data", query)
	}
	rig.Wait(t, func() bool { return series(t, "up == 1") == len(targets) }, patience, 200*time.Millisecond, "all are scraped")
	record(t, row{part: "queries of the dashboard", took: time.Since(began),
		note: fmt.Sprintf("%d of %d have data, the others are about GPUs", len(asked), len(all))})
}

// series is how many series a query has.
func series(t *testing.T, query string) int {
	t.Helper()
	answer, err := http.Get("http://" + at(atPrometheus) + ":9090/api/v1/query?query=" + url.QueryEscape(query))
	require.NoError(t, err)
	defer answer.Body.Close()
	var got struct {
		Status, Error string
		Data          struct{ Result []any }
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&got))
	require.Equal(t, "success", got.Status, "%s: %s", query, got.Error)
	return len(got.Data.Result)
}

// queries are the expressions of a dashboard.
func queries(node any) (found []string) {
	switch node := node.(type) {
	case map[string]any:
		if text, ok := node["expr"].(string); ok {
			found = append(found, text)
		}
		for _, value := range node {
			found = append(found, queries(value)...)
		}
	case []any:
		for _, value := range node {
			found = append(found, queries(value)...)
		}
	}
	slices.Sort(found)
	return found
}
