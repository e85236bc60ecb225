package deploy_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type behavior struct {
	ScaleDown struct {
		Stabilization int `yaml:"stabilizationWindowSeconds"`
		Policies      []struct {
			Type   string `yaml:"type"`
			Value  int    `yaml:"value"`
			Period int    `yaml:"periodSeconds"`
		} `yaml:"policies"`
	} `yaml:"scaleDown"`
}

type named struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Name       string `yaml:"name"`
}

// The autoscalers read what the worker on the CPU exports, and scale workers of that pool
// by the slots that these have.
func TestAutoscaling_ReadsTheBacklogOfThePool(t *testing.T) {
	var keda struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
		Metadata   named  `yaml:"metadata"`
		Spec       struct {
			Target   named `yaml:"scaleTargetRef"`
			Min      int   `yaml:"minReplicaCount"`
			Max      int   `yaml:"maxReplicaCount"`
			Polling  int   `yaml:"pollingInterval"`
			Cooldown int   `yaml:"cooldownPeriod"`
			Advanced struct {
				HPA struct {
					Behavior behavior `yaml:"behavior"`
				} `yaml:"horizontalPodAutoscalerConfig"`
			} `yaml:"advanced"`
			Triggers []struct {
				Type     string `yaml:"type"`
				Metadata struct {
					Address   string `yaml:"serverAddress"`
					Query     string `yaml:"query"`
					Threshold string `yaml:"threshold"`
				} `yaml:"metadata"`
			} `yaml:"triggers"`
		} `yaml:"spec"`
	}
	decode(t, "keda.yaml", read(t, "deploy/kubernetes/autoscaling/keda.yaml"), &keda)
	var hpa struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
		Metadata   named  `yaml:"metadata"`
		Spec       struct {
			Target  named `yaml:"scaleTargetRef"`
			Min     int   `yaml:"minReplicas"`
			Max     int   `yaml:"maxReplicas"`
			Metrics []struct {
				Type     string `yaml:"type"`
				External struct {
					Metric struct {
						Name     string `yaml:"name"`
						Selector struct {
							Labels map[string]string `yaml:"matchLabels"`
						} `yaml:"selector"`
					} `yaml:"metric"`
					Target struct {
						Type    string `yaml:"type"`
						Average string `yaml:"averageValue"`
					} `yaml:"target"`
				} `yaml:"external"`
			} `yaml:"metrics"`
			Behavior behavior `yaml:"behavior"`
		} `yaml:"spec"`
	}
	decode(t, "hpa.yaml", read(t, "deploy/kubernetes/autoscaling/hpa.yaml"), &hpa)

	all := manifests(t, plain)
	require.Contains(t, all, "Deployment/"+keda.Spec.Target.Name)
	require.Contains(t, all, "Deployment/"+hpa.Spec.Target.Name)
	small := loads(t, "cpu.yaml", []byte(all["ConfigMap/gpumux-cpu"].Data["worker.yaml"]))
	gpus := loads(t, "gpu.yaml", []byte(all["ConfigMap/gpumux-gpu"].Data["worker.yaml"]))
	pool := gpus.Pools[0].Name
	require.True(t, slices.Contains(small.Backlog, pool))

	metrics, query := exported(t), regexp.MustCompile(`(gpumux_\w+)\{(\w+)="(\w+)"\}`)
	for _, trigger := range keda.Spec.Triggers {
		found := query.FindStringSubmatch(trigger.Metadata.Query)
		require.NotNil(t, found, trigger.Metadata.Query)
		require.Contains(t, metrics[found[1]], found[2])
		require.Equal(t, pool, found[3])
	}
	require.Len(t, keda.Spec.Triggers, 2)
	external := hpa.Spec.Metrics[0].External
	require.Contains(t, metrics, external.Metric.Name)
	require.Equal(t, map[string]string{"pool": pool}, external.Metric.Selector.Labels)
	tenMinutes := fmt.Sprint(600 * gpus.Pools[0].Slots)
	require.Equal(t, []string{tenMinutes, tenMinutes}, []string{keda.Spec.Triggers[1].Metadata.Threshold, external.Target.Average})
}
