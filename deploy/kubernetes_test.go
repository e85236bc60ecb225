package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
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
		Strategy struct {
			Type          string `yaml:"type"`
			RollingUpdate struct {
				MaxSurge       *int `yaml:"maxSurge"`
				MaxUnavailable int  `yaml:"maxUnavailable"`
			} `yaml:"rollingUpdate"`
		} `yaml:"strategy"`
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
		Image   string   `yaml:"image"`
		Args    []string `yaml:"args"`
		EnvFrom []struct {
			ConfigMapRef struct {
				Name string `yaml:"name"`
			} `yaml:"configMapRef"`
		} `yaml:"envFrom"`
		Resources struct {
			Limits map[string]string `yaml:"limits"`
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

// generator is a ConfigMap whose name gets a hash of what it holds, so that what refers
// to it changes with it.
type generator struct {
	Name  string   `yaml:"name"`
	Envs  []string `yaml:"envs"`
	Files []string `yaml:"files"`
}

func (g generator) manifest(t *testing.T) manifest {
	t.Helper()
	m := manifest{APIVersion: "v1", Kind: "ConfigMap", Data: map[string]string{}}
	m.Metadata.Name = g.Name
	for _, name := range g.Files {
		m.Data[filepath.Base(name)] = string(read(t, "deploy/kubernetes/"+name))
	}
	for _, name := range g.Envs {
		for line := range strings.Lines(string(read(t, "deploy/kubernetes/"+name))) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
				m.Data[key] = value
			}
		}
	}
	require.NotEmpty(t, m.Data, g.Name)
	return m
}

// manifests are the objects that the kustomization lists and generates, by kind and name.
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	var list struct {
		Resources  []string    `yaml:"resources"`
		Generators []generator `yaml:"configMapGenerator"`
		Options    struct {
			DisableNameSuffixHash bool `yaml:"disableNameSuffixHash"`
		} `yaml:"generatorOptions"`
		Images []struct {
			Name   string `yaml:"name"`
			NewTag string `yaml:"newTag"`
		} `yaml:"images"`
	}
	require.NoError(t, yaml.Unmarshal(read(t, "deploy/kubernetes/kustomization.yaml"), &list))
	require.Equal(t, "gpumux", list.Images[0].Name)
	require.NotEqual(t, "latest", list.Images[0].NewTag)
	files, err := filepath.Glob("kubernetes/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, len(list.Resources)+1, "the kustomization lists every file")
	require.False(t, list.Options.DisableNameSuffixHash, "the hash is what starts workers anew")
	all := map[string]manifest{}
	for _, each := range list.Generators {
		m := each.manifest(t)
		all[m.Kind+"/"+m.Metadata.Name] = m
	}
	for _, name := range list.Resources {
		decoder := yaml.NewDecoder(bytes.NewReader(read(t, "deploy/kubernetes/"+name)))
		for {
			var m manifest
			err := decoder.Decode(&m)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, name)
			require.NotEmpty(t, m.APIVersion, name)
			key := m.Kind + "/" + m.Metadata.Name
			require.NotContains(t, all, key)
			require.NotEqual(t, "ConfigMap", m.Kind, "%s: an edited one would reach no worker; generate it", key)
			all[key] = m
		}
	}
	return all
}

func TestKubernetes_WorkersFindWhatTheyMount(t *testing.T) {
	all := manifests(t)
	for _, kind := range []string{"cpu", "gpu"} {
		m, ok := all["Deployment/gpumux-"+kind]
		require.True(t, ok, kind)
		require.Equal(t, m.Spec.Selector.MatchLabels, m.Spec.Template.Metadata.Labels)
		spec := m.Spec.Template.Spec
		require.Len(t, spec.Containers, 1)
		worker := spec.Containers[0]
		require.Regexp(t, pinned, worker.Image)
		require.Contains(t, all, "ConfigMap/"+worker.EnvFrom[0].ConfigMapRef.Name)
		understood(t, worker.Args)
		require.Len(t, worker.Ports, 1)
		require.Equal(t, probe{httpGet{"/healthz", worker.Ports[0].Name}}, worker.ReadinessProbe)
		require.Equal(t, probe{httpGet{"/startz", worker.Ports[0].Name}}, worker.StartupProbe)
		require.Equal(t, probe{httpGet{"/livez", worker.Ports[0].Name}}, worker.LivenessProbe)

		paths := map[string]string{}
		for _, mount := range worker.VolumeMounts {
			paths[mount.Name] = mount.MountPath
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
		file := strings.TrimPrefix(worker.Args[2], paths["config"]+"/")
		data, ok := all["ConfigMap/gpumux"].Data[file]
		require.True(t, ok, file)
		config := loads(t, file, []byte(data))
		require.Equal(t, "file://"+paths["store"], config.Store)
		require.Equal(t, paths["tasks"], config.Tasks["*"].PythonDir)
		require.Equal(t, kind, config.Pools[0].Name)
	}
}

func TestKubernetes_WorkersHaveNoMoreThanTheyNeed(t *testing.T) {
	all := manifests(t)
	for _, kind := range []string{"cpu", "gpu"} {
		spec := all["Deployment/gpumux-"+kind].Spec.Template.Spec
		require.True(t, spec.SecurityContext.RunAsNonRoot)
		require.Equal(t, 10001, spec.SecurityContext.RunAsUser, "the user of deploy/Dockerfile")
		// 30 s for running chunks, 5 s for their processes.
		require.Greater(t, spec.TerminationGracePeriodSeconds, 35)
		worker := spec.Containers[0]
		require.True(t, worker.SecurityContext.ReadOnlyRootFilesystem)
		require.NotNil(t, worker.SecurityContext.AllowPrivilegeEscalation)
		require.False(t, *worker.SecurityContext.AllowPrivilegeEscalation)
		_, hasGPU := worker.Resources.Limits["nvidia.com/gpu"]
		require.Equal(t, kind == "gpu", hasGPU)
	}
	require.Subset(t, environment["gpumux"], slices.Collect(maps.Keys(all["ConfigMap/gpumux-temporal"].Data)))
}

// A rollout must not wait for a GPU that nobody has.
func TestKubernetes_ARolloutNeedsNoSecondGPU(t *testing.T) {
	strategy := manifests(t)["Deployment/gpumux-gpu"].Spec.Strategy
	if strategy.Type != "Recreate" {
		require.Equal(t, "RollingUpdate", strategy.Type)
		require.NotNil(t, strategy.RollingUpdate.MaxSurge)
		require.Zero(t, *strategy.RollingUpdate.MaxSurge)
		require.Positive(t, strategy.RollingUpdate.MaxUnavailable)
	}
}
