package deploy_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The autoscalers read what the worker on the CPU exports, and scale workers of that pool
// by the slots that these have.
func TestAutoscaling_ReadsTheBacklogOfThePool(t *testing.T) {
	all := manifests(t, plain)
	small := loads(t, "cpu.yaml", []byte(all["ConfigMap/gpumux-cpu"].Data["worker.yaml"]))
	pool := loads(t, "gpu.yaml", []byte(all["ConfigMap/gpumux-gpu"].Data["worker.yaml"])).Pools[0]
	require.True(t, slices.Contains(small.Backlog, pool.Name))
	metrics, tenMinutes := exported(t), fmt.Sprintf(`"%d"`, 600*pool.Slots)
	for name, asks := range map[string]int{"keda": 2, "hpa": 1} {
		var object struct {
			Spec struct {
				Target struct{ Kind, Name string } `yaml:"scaleTargetRef"`
			}
		}
		text := string(read(t, "deploy/kubernetes/autoscaling/"+name+".yaml"))
		require.NoError(t, yaml.Unmarshal([]byte(text), &object))
		require.Contains(t, all, "Deployment/"+object.Spec.Target.Name)
		found := regexp.MustCompile(`(gpumux_\w+)\b`).FindAllString(regexp.MustCompile(`#.*`).ReplaceAllString(text, ""), -1)
		require.Len(t, found, asks, name)
		for _, metric := range found {
			require.Contains(t, metrics[metric], "pool")
		}
		require.Equal(t, asks, strings.Count(text, `pool="`+pool.Name+`"`)+strings.Count(text, "pool: "+pool.Name), name)
		require.Contains(t, text, tenMinutes, name)
	}
}
