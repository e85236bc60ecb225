package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// probe is how Kubernetes asks a container.
type probe struct {
	HTTPGet httpGet `yaml:"httpGet"`
}

type httpGet struct{ Path, Port string }

// manifest is what the tests need of a Kubernetes object.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Data map[string]string `yaml:"data"`
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"selector"`
		Template struct {
			Metadata struct {
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"metadata"`
			Spec pod `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type pod struct {
	TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
		RunAsUser    int  `yaml:"runAsUser"`
	} `yaml:"securityContext"`
	Containers []struct {
		Image     string   `yaml:"image"`
		Args      []string `yaml:"args"`
		Env       []struct{ Name, Value string }
		Resources struct {
			Requests map[string]string `yaml:"requests"`
			Limits   map[string]string `yaml:"limits"`
		} `yaml:"resources"`
		Ports []struct {
			Name string `yaml:"name"`
			Port int    `yaml:"containerPort"`
		} `yaml:"ports"`
		ReadinessProbe  probe `yaml:"readinessProbe"`
		LivenessProbe   probe `yaml:"livenessProbe"`
		StartupProbe    probe `yaml:"startupProbe"`
		SecurityContext struct {
			AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		} `yaml:"securityContext"`
		VolumeMounts []struct {
			Name      string `yaml:"name"`
			MountPath string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
	} `yaml:"containers"`
	Volumes []struct {
		Name      string `yaml:"name"`
		ConfigMap struct {
			Name string `yaml:"name"`
		} `yaml:"configMap"`
		PersistentVolumeClaim struct {
			ClaimName string `yaml:"claimName"`
		} `yaml:"persistentVolumeClaim"`
	} `yaml:"volumes"`
}

// manifests are the objects of a render of the chart, by kind and name.
func manifests(t *testing.T, render string) map[string]manifest {
	t.Helper()
	all := map[string]manifest{}
	for decoder := yaml.NewDecoder(bytes.NewReader(read(t, "deploy/"+render))); ; {
		var m manifest
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		require.NotEmpty(t, m.APIVersion)
		key := m.Kind + "/" + m.Metadata.Name
		require.NotContains(t, all, key)
		all[key] = m
	}
}

// The renders are of the chart's own values, and of what else it can do.
const (
	plain = "kubernetes/gpumux.yaml"
	full  = "helm/testdata/full.golden.yaml"
)

// deployments are the workers of both renders, by pool.
func deployments(t *testing.T, each func(pool string, m manifest, all map[string]manifest)) {
	t.Helper()
	for render, pools := range map[string][]string{plain: {"cpu", "gpu"}, full: {"gpu"}} {
		all := manifests(t, render)
		for _, pool := range pools {
			require.Contains(t, all, "Deployment/gpumux-"+pool)
			each(pool, all["Deployment/gpumux-"+pool], all)
		}
	}
}

func TestKubernetes_WorkersFindWhatTheyMount(t *testing.T) {
	deployments(t, func(pool string, m manifest, all map[string]manifest) {
		require.Equal(t, m.Spec.Selector.MatchLabels, m.Spec.Template.Metadata.Labels)
		spec := m.Spec.Template.Spec
		require.Len(t, spec.Containers, 1)
		worker := spec.Containers[0]
		require.Regexp(t, pinned, worker.Image)
		understood(t, worker.Args)
		require.Len(t, worker.Ports, 1)
		require.Equal(t, probe{httpGet{"/healthz", worker.Ports[0].Name}}, worker.ReadinessProbe)
		require.Equal(t, probe{httpGet{"/startz", worker.Ports[0].Name}}, worker.StartupProbe)
		require.Equal(t, probe{httpGet{"/livez", worker.Ports[0].Name}}, worker.LivenessProbe)

		paths, where := map[string]string{}, []string{}
		for _, mount := range worker.VolumeMounts {
			paths[mount.Name] = mount.MountPath
			where = append(where, mount.MountPath)
		}
		require.Len(t, paths, len(spec.Volumes), "every volume is mounted")
		for _, volume := range spec.Volumes {
			require.Contains(t, paths, volume.Name)
			if name := volume.ConfigMap.Name; name != "" {
				require.Contains(t, all, "ConfigMap/"+name)
			}
			if name := volume.PersistentVolumeClaim.ClaimName; name != "" {
				require.Contains(t, all, "PersistentVolumeClaim/"+name)
			}
		}
		config := loads(t, "worker.yaml", []byte(all["ConfigMap/gpumux-"+pool].Data["worker.yaml"]))
		require.Equal(t, paths["config"]+"/worker.yaml", worker.Args[2])
		if disk, ok := strings.CutPrefix(config.Store, "file://"); ok {
			require.Equal(t, paths["store"], disk)
		}
		if tasks, ok := paths["tasks"]; ok {
			require.Equal(t, tasks, config.Tasks["*"].PythonDir)
		}
		require.Equal(t, pool, config.Pools[0].Name)
		for _, variable := range worker.Env {
			require.Contains(t, variables, variable.Name)
			if strings.HasSuffix(variable.Name, "_PATH") {
				require.Contains(t, where, path.Dir(variable.Value))
			}
		}
	})
}

// Variables that a worker reads; contrib/envconfig of the Temporal SDK has those of TLS.
var variables = append([]string{"HOME", "TEMPORAL_TLS_SERVER_CA_CERT_PATH", "TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_PATH"},
	environment["gpumux"]...)

func TestKubernetes_WorkersHaveNoMoreThanTheyNeed(t *testing.T) {
	deployments(t, func(pool string, m manifest, _ map[string]manifest) {
		spec := m.Spec.Template.Spec
		require.True(t, spec.SecurityContext.RunAsNonRoot)
		require.Equal(t, 10001, spec.SecurityContext.RunAsUser, "the user of deploy/Dockerfile")
		// 30 s for running chunks, 5 s for their processes.
		require.Greater(t, spec.TerminationGracePeriodSeconds, 35)
		worker := spec.Containers[0]
		require.True(t, worker.SecurityContext.ReadOnlyRootFilesystem)
		require.NotNil(t, worker.SecurityContext.AllowPrivilegeEscalation)
		require.False(t, *worker.SecurityContext.AllowPrivilegeEscalation)
		_, hasGPU := worker.Resources.Limits["nvidia.com/gpu"]
		require.Equal(t, pool == "gpu", hasGPU)
	})
}
