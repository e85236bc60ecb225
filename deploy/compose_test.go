package deploy_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// composition is as much of a Compose file as ours uses; another field is a mistake.
type composition struct {
	Name     string             `yaml:"name"`
	Confined service            `yaml:"x-confined"`
	Worker   service            `yaml:"x-worker"`
	Services map[string]service `yaml:"services"`
	Networks map[string]network `yaml:"networks"`
	Volumes  map[string]any     `yaml:"volumes"`
}

type network struct {
	Internal bool `yaml:"internal"`
}

type service struct {
	CapDrop         []string             `yaml:"cap_drop"`
	CapAdd          []string             `yaml:"cap_add"`
	SecurityOpt     []string             `yaml:"security_opt"`
	ShmSize         string               `yaml:"shm_size"`
	Networks        []string             `yaml:"networks"`
	Image           string               `yaml:"image"`
	Build           map[string]string    `yaml:"build"`
	Profiles        []string             `yaml:"profiles"`
	Environment     map[string]string    `yaml:"environment"`
	Volumes         []string             `yaml:"volumes"`
	Ports           []string             `yaml:"ports"`
	Entrypoint      []string             `yaml:"entrypoint"`
	Healthcheck     healthcheck          `yaml:"healthcheck"`
	DependsOn       map[string]condition `yaml:"depends_on"`
	Restart         string               `yaml:"restart"`
	StopGracePeriod string               `yaml:"stop_grace_period"`
	Deploy          deployment           `yaml:"deploy"`
}

type condition struct {
	Condition string `yaml:"condition"`
}

type healthcheck struct {
	Test     []string `yaml:"test"`
	Interval string   `yaml:"interval"`
	Timeout  string   `yaml:"timeout"`
	Retries  int      `yaml:"retries"`
}

type deployment struct {
	Resources struct {
		Reservations struct {
			Devices []struct {
				Driver       string   `yaml:"driver"`
				Count        string   `yaml:"count"`
				Capabilities []string `yaml:"capabilities"`
			} `yaml:"devices"`
		} `yaml:"reservations"`
	} `yaml:"resources"`
}

func compose(t *testing.T) composition {
	t.Helper()
	var c composition
	decode(t, "docker-compose.yml", read(t, "docker-compose.yml"), &c)
	require.Len(t, c.Services, 7)
	return c
}

// Names that the images document or read, by image:
//   - postgres: https://hub.docker.com/_/postgres
//   - temporalio/server: common/config/config_template_embedded.yaml of go.temporal.io/server v1.32.1
//   - temporalio/admin-tools: tools/sql/main.go of the same, and the environment of the temporal command
//   - temporalio/ui: config/docker.yaml of github.com/temporalio/ui-server v2.55.0
var environment = map[string][]string{
	"postgres": {"POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB"},
	"temporalio/server": {"DB", "DB_PORT", "POSTGRES_SEEDS", "POSTGRES_USER", "POSTGRES_PWD", "BIND_ON_IP", "LOG_LEVEL",
		"DYNAMIC_CONFIG_FILE_PATH", "NUM_HISTORY_SHARDS"},
	"temporalio/admin-tools": {"SQL_HOST", "SQL_PORT", "SQL_USER", "SQL_PASSWORD", "SQL_PLUGIN", "TEMPORAL_ADDRESS",
		"TEMPORAL_NAMESPACE"},
	"temporalio/ui": {"TEMPORAL_ADDRESS", "TEMPORAL_UI_PORT", "TEMPORAL_CORS_ORIGINS", "TEMPORAL_DISABLE_NEWS_FETCH"},
	"gpumux":        {"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "GPUMUX_STORE", "GPUMUX_UI"},
}

func TestCompose_ImagesArePinnedAndKnowTheirEnvironment(t *testing.T) {
	for name, s := range compose(t).Services {
		image, tag, _ := strings.Cut(s.Image, ":")
		if image == "gpumux" {
			require.Equal(t, "local", tag, name)
			require.Equal(t, ".", s.Build["context"], name)
			require.FileExists(t, filepath.Join("..", s.Build["dockerfile"]), name)
		} else {
			require.Regexp(t, pinned, s.Image, name)
		}
		known, ok := environment[image]
		require.True(t, ok, "%s: image %s", name, image)
		require.Subset(t, known, slices.Collect(maps.Keys(s.Environment)), name)
	}
}

// Only the frontend and the Web UI are published, and on loopback alone.
func TestCompose_PublishesOnLoopbackOnly(t *testing.T) {
	published := map[string]string{}
	for name, s := range compose(t).Services {
		for _, port := range s.Ports {
			require.Regexp(t, `^127\.0\.0\.1:\d+:\d+$`, port, name)
			published[name] += port
		}
	}
	require.Equal(t, map[string]string{"temporal": "127.0.0.1:7233:7233", "ui": "127.0.0.1:8233:8233"}, published)
}

func TestCompose_MountsWhatExists(t *testing.T) {
	c := compose(t)
	variable := regexp.MustCompile(`^\$\{\w+:-(.+?)\}`)
	for name, s := range c.Services {
		for _, volume := range s.Volumes {
			source, target, ok := strings.Cut(variable.ReplaceAllString(volume, "$1"), ":")
			require.True(t, ok && strings.HasPrefix(target, "/"), "%s: %s", name, volume)
			if strings.HasPrefix(source, ".") {
				_, err := filepath.EvalSymlinks(filepath.Join("..", source))
				require.NoError(t, err, name)
				require.True(t, strings.HasSuffix(target, ":ro"), "%s: %s can be written", name, volume)
			} else {
				require.Contains(t, c.Volumes, source, name)
			}
		}
		if len(s.Entrypoint) > 0 {
			script := s.Entrypoint[len(s.Entrypoint)-1]
			require.True(t, slices.ContainsFunc(s.Volumes, func(v string) bool { return strings.Contains(v, ":"+script+":") }), name)
		}
	}
}

func TestCompose_WorkersShareTheStoreAndOneHasGPUs(t *testing.T) {
	c := compose(t)
	for name, file := range map[string]string{"worker": "worker.yaml", "worker-gpu": "worker-gpu.yaml"} {
		s := c.Services[name]
		config := loads(t, file, read(t, "deploy/"+file))
		require.Contains(t, s.Volumes, "./deploy/"+file+":/etc/gpumux/worker.yaml:ro")
		require.Contains(t, s.Volumes, "store:"+strings.TrimPrefix(config.Store, "file://"))
		require.Equal(t, "temporal:7233", s.Environment["TEMPORAL_ADDRESS"])
	}
	require.Empty(t, c.Services["worker"].Profiles)
	require.Empty(t, c.Services["worker"].Deploy.Resources.Reservations.Devices)
	gpu := c.Services["worker-gpu"]
	require.Equal(t, []string{"gpu"}, gpu.Profiles)
	devices := gpu.Deploy.Resources.Reservations.Devices
	require.Len(t, devices, 1)
	require.Equal(t, "nvidia", devices[0].Driver)
	require.Contains(t, devices[0].Capabilities, "gpu")
}

// No container can do more than its user can, and none can become more.
func TestCompose_ContainersAreConfined(t *testing.T) {
	for name, s := range compose(t).Services {
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		require.Contains(t, s.SecurityOpt, "no-new-privileges:true", name)
		if name == "postgres" {
			require.Subset(t, []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}, s.CapAdd)
		} else {
			require.Empty(t, s.CapAdd, name)
		}
	}
}

// Tasks, which are anybody's code, share no network with the database.
func TestCompose_TasksDoNotReachTheDatabase(t *testing.T) {
	c := compose(t)
	require.True(t, c.Networks["database"].Internal)
	for name, want := range map[string][]string{
		"postgres": {"database"}, "schema": {"database"}, "temporal": {"database", "default"},
		"namespace": nil, "ui": nil, "worker": nil, "worker-gpu": nil, // nil is the network default
	} {
		require.Equal(t, want, c.Services[name].Networks, name)
	}
}
