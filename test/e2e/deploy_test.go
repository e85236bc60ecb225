package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/dynamicconfig"
	"go.yaml.in/yaml/v3"
)

// source is the folder of a module that this one requires, and its version.
func source(t *testing.T, module string) (dir, version string) {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", module).Output()
	require.NoError(t, err)
	dir, version, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	return dir, version
}

func text(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	require.NoError(t, err)
	return string(data)
}

// The settings of the server in docker-compose.yml are ones that it knows, with values of
// their types.
func TestCompose_SettingsAreKnownToTheServer(t *testing.T) {
	file := text(t, top(t), "deploy", "temporal", "dynamicconfig.yaml")
	loaded := dynamicconfig.LoadYamlFile([]byte(file))
	require.Empty(t, loaded.Errors)
	require.Empty(t, loaded.Warnings)
	require.NotEmpty(t, dynamicconfig.LoadYamlFile([]byte(file+"\nmatching.noSuchSetting: [{value: 1}]\n")).Warnings)
}

// The images are those of the versions that are tested here, and read the variables that
// they are given.
func TestCompose_ImagesAreTheTestedOnes(t *testing.T) {
	var compose struct {
		Services map[string]struct {
			Image       string            `yaml:"image"`
			Environment map[string]string `yaml:"environment"`
		} `yaml:"services"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(text(t, top(t), "docker-compose.yml")), &compose))
	server, serverVersion := source(t, "go.temporal.io/server")
	ui, uiVersion := source(t, "github.com/temporalio/ui-server/v2")
	tools := text(t, server, "tools", "sql", "main.go")
	for name, c := range map[string]struct{ image, version, template, call string }{
		"temporal": {"temporalio/server", serverVersion, text(t, server, "common", "config", "config_template_embedded.yaml"), `env "`},
		"schema":   {"temporalio/admin-tools", serverVersion, tools, `EnvVar: "`},
		"ui":       {"temporalio/ui", uiVersion, text(t, ui, "config", "docker.yaml"), `env "`},
	} {
		got := compose.Services[name]
		require.Equal(t, c.image+":"+strings.TrimPrefix(c.version, "v"), got.Image, name)
		require.NotEmpty(t, got.Environment, name)
		for variable := range got.Environment {
			require.Contains(t, c.template, c.call+variable+`"`, name)
		}
	}
	require.Equal(t, compose.Services["schema"].Image, compose.Services["namespace"].Image)
	for _, option := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(text(t, top(t), "deploy", "temporal", "schema.sh"), -1) {
		require.Contains(t, text(t, server, "tools", "common", "schema", "types.go"), `= "`+option[1]+`"`)
	}
}
