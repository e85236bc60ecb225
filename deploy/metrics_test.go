package deploy_test

import (
	"encoding/json"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gpumux/gpumux/internal/slot"
)

// exported are the labels of each metric that a worker serves of its own.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, found := range regexp.MustCompile(`"(gpumux_\w+)",([^\[]*?)(?:\[\]string\{([^}]*)\}|\}\))`).FindAllStringSubmatch(string(read(t, "workers/metrics.go")), -1) {
		all[found[1]] = regexp.MustCompile(`\w+`).FindAllString(found[3], -1)
		if strings.Contains(found[2], "Buckets") {
			all[found[1]] = append(all[found[1]], "le")
		}
	}
	require.GreaterOrEqual(t, len(all), 17)
	return all
}

// queries are the strings under the keys expr and query, wherever they are.
func queries(node any) (found []string) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if text, ok := value.(string); ok && (key == "expr" || key == "query") {
				found = append(found, text)
			}
			found = append(found, queries(value)...)
		}
	case []any:
		for _, value := range node {
			found = append(found, queries(value)...)
		}
	}
	return found
}

func TestGrafana_AsksForWhatWorkersExport(t *testing.T) {
	var dashboard any
	require.NoError(t, json.Unmarshal(read(t, "deploy/grafana/workers.json"), &dashboard))
	all, shown := exported(t), map[string]bool{}
	var (
		metric  = regexp.MustCompile(`(gpumux_\w+)(\{[^}]*\})?`)
		grouped = regexp.MustCompile(`\bby \(([^)]*)\)`)
		chosen  = regexp.MustCompile(`(\w+)(?:=~|!=|=)"`)
		asked   = regexp.MustCompile(`label_values\(\w+, (\w+)\)`)
		series  = regexp.MustCompile(`_(bucket|sum|count)$`)
		state   = regexp.MustCompile(`state!?="(\w+)"`)
	)
	for _, query := range queries(dashboard) {
		var labels []string
		for _, found := range append(grouped.FindAllStringSubmatch(query, -1), asked.FindAllStringSubmatch(query, -1)...) {
			labels = append(labels, strings.Split(found[1], ", ")...)
		}
		for _, each := range metric.FindAllStringSubmatch(query, -1) {
			name := each[1]
			if histogram := series.ReplaceAllString(name, ""); slices.Contains(all[histogram], "le") {
				name = histogram
			}
			require.Contains(t, all, name, query)
			require.Subset(t, all[name], labels, query)
			for _, found := range chosen.FindAllStringSubmatch(each[2], -1) {
				require.Contains(t, all[name], found[1], query)
			}
			shown[name] = true
		}
		for _, found := range state.FindAllStringSubmatch(query, -1) {
			require.Contains(t, slot.States(), slot.State(found[1]), query)
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(all)), slices.Collect(maps.Keys(shown)), "the dashboard shows every metric")
}

// A worker in a cluster serves its metrics where the annotations of its pod send
// Prometheus.
func TestPrometheus_FindsTheWorkersOfTheManifests(t *testing.T) {
	var config struct {
		Rules  []string `yaml:"rule_files"`
		Scrape []struct {
			Job        string `yaml:"job_name"`
			Kubernetes []struct {
				Role       string              `yaml:"role"`
				Namespaces map[string][]string `yaml:"namespaces"`
			} `yaml:"kubernetes_sd_configs"`
			Static []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal(read(t, "deploy/prometheus/prometheus.yml"), &config))
	require.Equal(t, []string{"alerts.yaml"}, config.Rules)
	require.Len(t, config.Scrape, 2)
	pods := config.Scrape[0]
	all := manifests(t, plain)
	for _, name := range pods.Kubernetes[0].Namespaces["names"] {
		require.Contains(t, string(read(t, "deploy/README.md")), "helm install gpumux deploy/helm/gpumux --namespace "+name)
	}
	for _, kind := range []string{"cpu", "gpu"} {
		template := all["Deployment/gpumux-"+kind].Spec.Template
		worker := loads(t, "worker.yaml", []byte(all["ConfigMap/gpumux-"+kind].Data["worker.yaml"]))
		host, port, err := net.SplitHostPort(worker.Metrics)
		require.NoError(t, err)
		require.Equal(t, "0.0.0.0", host, "loopback of a pod is out of Prometheus's reach")
		require.Subset(t, template.Metadata.Annotations, map[string]string{
			"prometheus.io/scrape": "true", "prometheus.io/port": port, "prometheus.io/path": "/metrics",
		})
	}
}

// Workers' files that people copy to hosts serve nothing unasked; what they propose is
// loopback.
func TestWorkerFiles_ProposeMetricsOnLoopback(t *testing.T) {
	for _, name := range []string{"worker.yaml", "worker-gpu.yaml"} {
		text := string(read(t, "deploy/"+name))
		require.Empty(t, loads(t, name, []byte(text)).Metrics)
		proposed := strings.Replace(text, "# metrics:", "metrics:", 1)
		require.NotEqual(t, text, proposed)
		require.Equal(t, "127.0.0.1:9464", loads(t, name, []byte(proposed)).Metrics)
	}
	var targets struct {
		Scrape []struct {
			Static []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal(read(t, "deploy/prometheus/prometheus.yml"), &targets))
	require.Equal(t, []string{"127.0.0.1:9464"}, targets.Scrape[1].Static[0].Targets)
}
