package deploy_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// tool is a program that make deploy-check fetches, or one of the PATH.
func tool(t *testing.T, name string) string {
	t.Helper()
	if found, err := filepath.Glob("../bin/test/" + name); err == nil && len(found) > 0 {
		path, err := filepath.Abs(found[0])
		require.NoError(t, err)
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		rig.Because(t, rig.Tool, name+"; make deploy-check fetches it")
	}
	return path
}

// anchors are what links into a page may name.
func anchors(page string) (all []string) {
	for _, found := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		text := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(found[1]), "")
		all = append(all, strings.ReplaceAll(text, " ", "-"))
	}
	return all
}

// Each alert asks for what there is, and names a page that says what to do.
func TestAlerts_AskForWhatThereIs(t *testing.T) {
	var rules struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	decode(t, "alerts.yaml", read(t, "deploy/prometheus/alerts.yaml"), &rules)
	all := exported(t)
	all["temporal_request_failure_total"] = []string{"operation"} // the Temporal SDK's
	selector, label := regexp.MustCompile(`((?:gpumux|temporal)_\w+)(\{[^}]*\})?`), regexp.MustCompile(`(\w+)(?:=~|!=|=)"([^"]*)"`)
	for _, rule := range rules.Groups[0].Rules {
		require.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"], rule.Alert)
		require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		link, ok := strings.CutPrefix(rule.Annotations["runbook_url"], "https://github.com/gpumux/gpumux/blob/main/")
		require.True(t, ok, rule.Alert)
		page, anchor, _ := strings.Cut(link, "#")
		require.Contains(t, anchors(string(read(t, page))), anchor, rule.Alert)
		found := selector.FindAllStringSubmatch(rule.Expr, -1)
		require.NotEmpty(t, found, rule.Alert)
		for _, each := range found {
			require.Contains(t, all, each[1], rule.Alert)
			for _, chosen := range label.FindAllStringSubmatch(each[2], -1) {
				require.Contains(t, all[each[1]], chosen[1], rule.Alert)
				for value := range strings.SplitSeq(chosen[2], "|") {
					switch chosen[1] {
					case "kind":
						require.True(t, slices.Contains(gpumux.Kinds(), gpumux.FaultKind(value)), value)
					case "state":
						require.Contains(t, slot.States(), slot.State(value))
					}
				}
			}
		}
	}
}

// Every alert fires when it should, and not before.
func TestAlerts_Fire(t *testing.T) {
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(read(t, "deploy/prometheus/alerts.yaml")), -1) {
		require.Contains(t, string(read(t, "deploy/prometheus/alerts_test.yaml")), "alertname: "+alert[1]+"\n        exp_alerts:")
	}
	test := exec.Command(tool(t, "promtool"), "test", "rules", "alerts_test.yaml")
	test.Dir = "prometheus"
	out, err := test.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
