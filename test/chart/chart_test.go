// Package chart_test reads what the Helm chart makes as strictly as an API server does,
// with the types of Kubernetes. Only this module has them: Temporal's server needs some.
package chart_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// read refuses unknown fields, keys that are given twice and values of the wrong type.
func read(object []byte) error {
	var is struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(object, &is); err != nil {
		return err
	}
	into, known := map[string]any{
		"v1/ConfigMap": &core.ConfigMap{}, "v1/PersistentVolumeClaim": &core.PersistentVolumeClaim{},
		"apps/v1/Deployment": &apps.Deployment{}, "policy/v1/PodDisruptionBudget": &policy.PodDisruptionBudget{},
		"networking.k8s.io/v1/NetworkPolicy": &networking.NetworkPolicy{},
	}[is.APIVersion+"/"+is.Kind]
	if !known {
		return os.ErrNotExist
	}
	return yaml.UnmarshalStrict(object, into)
}

func TestChart_ObjectsAreOfTheAPI(t *testing.T) {
	for name, objects := range map[string]int{"kubernetes/gpumux.yaml": 9, "helm/testdata/full.golden.yaml": 4} {
		text, err := os.ReadFile(filepath.Join("../../deploy", name))
		require.NoError(t, err)
		all := regexp.MustCompile(`(?m)^---$`).Split(string(text), -1)[1:]
		require.Len(t, all, objects)
		for _, object := range all {
			require.NoError(t, read([]byte(object)), "%s", object)
		}
	}
	require.Error(t, read([]byte("{apiVersion: apps/v1, kind: Deployment, spec: {replica: 1}}")))
	require.Error(t, read([]byte("{apiVersion: v1, kind: PersistentVolumeClaim, spec: {resources: {requests: {storage: much}}}}")))
}
