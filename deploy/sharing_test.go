package deploy_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shared is a part of a device plugin's configuration: how many pods get a device.
type shared struct {
	RenameByDefault            bool `yaml:"renameByDefault"`
	FailRequestsGreaterThanOne bool `yaml:"failRequestsGreaterThanOne"`
	Resources                  []struct {
		Name     string `yaml:"name"`
		Replicas int    `yaml:"replicas"`
	} `yaml:"resources"`
}

// plugin is what the files here use of the NVIDIA device plugin's configuration,
// api/config/v1.
type plugin struct {
	Version string `yaml:"version"`
	Flags   struct {
		MIGStrategy string `yaml:"migStrategy"`
	} `yaml:"flags"`
	Sharing struct {
		TimeSlicing *shared `yaml:"timeSlicing"`
		MPS         *shared `yaml:"mps"`
	} `yaml:"sharing"`
}

// Each file sets up the one thing that its name says, in fields that the plugin knows.
func TestKubernetes_DevicePlugin(t *testing.T) {
	files, err := filepath.Glob("helm/device-plugin/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		var p plugin
		decode(t, file, read(t, "deploy/"+file), &p)
		require.Equal(t, "v1", p.Version, file)
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		require.Equal(t, name == "time-slicing", p.Sharing.TimeSlicing != nil, file)
		require.Equal(t, name == "mps", p.Sharing.MPS != nil, file)
		require.Equal(t, name == "mig", p.Flags.MIGStrategy == "mixed", file)
		for _, s := range []*shared{p.Sharing.TimeSlicing, p.Sharing.MPS} {
			if s == nil {
				continue
			}
			require.False(t, s.RenameByDefault, "the manifest asks for nvidia.com/gpu")
			require.Len(t, s.Resources, 1)
			require.Equal(t, "nvidia.com/gpu", s.Resources[0].Name)
			require.Greater(t, s.Resources[0].Replicas, 1, "the plugin refuses less")
		}
	}
	resource := manifests(t, plain)["Deployment/gpumux-gpu"].Spec.Template.Spec.Containers[0].Resources
	require.Contains(t, resource.Limits, "nvidia.com/gpu")
}
