// Package deploy_test reads what operators start from: the images, docker-compose.yml,
// the Kubernetes manifests, the systemd unit, the workers' files and what Prometheus and
// Grafana are given. It holds that they parse, that what they name exists and that
// nothing listens beyond this machine, or in Kubernetes beyond the cluster. It starts no
// container.
package deploy_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gpumux/gpumux/internal/cli"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workers/config"
)

// read is a file of the repository, named from its top.
func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", name))
	require.NoError(t, err)
	return data
}

// decode reads strict YAML: unknown fields and keys that are given twice are errors.
func decode(t *testing.T, name string, data []byte, into any) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(into), name)
}

// understood says whether gpumux takes a command line, without running it.
func understood(t *testing.T, args []string) {
	t.Helper()
	var out bytes.Buffer
	words := slices.Insert(slices.Clone(args), 1, "--help")
	code := cli.Main(cli.Options{Args: words, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out})
	require.Zero(t, code, "gpumux %s: %s", strings.Join(args, " "), out.String())
	require.Contains(t, out.String(), "gpumux "+args[0])
}

// loads says whether a worker's file is one, and where it keeps results and tasks.
func loads(t *testing.T, name string, data []byte) config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), filepath.Base(name))
	require.NoError(t, os.WriteFile(file, data, 0o600))
	config, err := config.Load(file)
	require.NoError(t, err, name)
	require.NotEmpty(t, config.Pools, name)
	require.NotEmpty(t, config.Tasks, name)
	return config
}

var pinned = regexp.MustCompile(`^[a-z0-9./-]+:v?\d+(\.\d+)+[a-z0-9.-]*$`)

func TestDeploy_UnderstoodSeesUnknownFlags(t *testing.T) {
	code := cli.Main(cli.Options{Args: []string{"worker", "--help", "--no-such-flag"}, Stdout: io.Discard, Stderr: io.Discard})
	require.Equal(t, 2, code)
}

func TestDockerfile_NamesWhatExists(t *testing.T) {
	text := string(read(t, "deploy/Dockerfile"))
	froms := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(text, -1)
	require.Len(t, froms, 2)
	for _, from := range froms {
		require.Regexp(t, pinned, from[1])
	}
	release := regexp.MustCompile(`golang:([\d.]+)-`).FindStringSubmatch(text)
	require.Contains(t, string(read(t, "go.mod")), "\ntoolchain go"+release[1]+"\n", "the image builds with the Go that go.mod names")
	require.FileExists(t, "../cmd/gpumux-worker/main.go")
	require.Contains(t, text, "./cmd/gpumux-worker")
	require.Contains(t, string(read(t, "cmd/gpumux-worker/main.go")), "var version string", "the linker sets main.version")
	require.Contains(t, text, "-X main.version=")

	require.Regexp(t, `(?m)^USER 10001:10001$`, text)
	require.Regexp(t, `(?m)^ENTRYPOINT \["tini", "--", "gpumux"\]$`, text)
	command := regexp.MustCompile(`(?m)^CMD (.+)$`).FindStringSubmatch(text)
	require.NotNil(t, command)
	var args []string
	decode(t, "CMD", []byte(command[1]), &args)
	understood(t, args)
}

// The image builds from the packages that the gpumux-worker imports, so each of them must
// reach the builder.
func TestDockerfile_ContextHasEveryPackage(t *testing.T) {
	var kept []string
	for line := range strings.Lines(string(read(t, "deploy/Dockerfile.dockerignore"))) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			kept = append(kept, name)
		}
	}
	for _, name := range kept {
		found, err := filepath.Glob(filepath.Join("..", name))
		require.NoError(t, err)
		require.NotEmpty(t, found, "%s of Dockerfile.dockerignore does not exist", name)
	}
	const module = "github.com/gpumux/gpumux/"
	out, err := exec.Command("go", "list", "-deps", module+"cmd/gpumux-worker").Output()
	require.NoError(t, err)
	packages := 0
	for name := range strings.Lines(string(out)) {
		if folder, ours := strings.CutPrefix(strings.TrimSpace(name), module); ours {
			first, _, _ := strings.Cut(folder, "/")
			require.Contains(t, kept, first)
			packages++
		}
	}
	require.Greater(t, packages, 8)
}

func TestWorkerFiles_Load(t *testing.T) {
	files, err := filepath.Glob("worker*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 2)
	for _, name := range files {
		config := loads(t, name, read(t, "deploy/"+name))
		require.Equal(t, "file:///var/lib/gpumux", config.Store, name)
		require.Empty(t, config.Temporal, "%s: the address comes from the environment", name)
		require.Equal(t, "/tasks", config.Tasks["*"].PythonDir, name)
	}
}

func TestSystemd_CommandsExist(t *testing.T) {
	unit := string(read(t, "deploy/systemd/gpumux-worker.service"))
	commands := regexp.MustCompile(`(?m)^ExecStart\w*=(.+)$`).FindAllStringSubmatch(unit, -1)
	require.Len(t, commands, 2)
	for _, command := range commands {
		words := strings.Fields(command[1])
		require.Equal(t, "gpumux", words[0], "systemd looks for it in /usr/local/bin and in /usr/bin")
		understood(t, words[1:])
	}
	for _, setting := range []string{"OOMPolicy=continue", "KillMode=mixed"} {
		require.Contains(t, unit, "\n"+setting+"\n", "a worker that outlives its tasks needs it")
	}
	for _, setting := range []string{"NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", "ProtectHome=yes", "PrivateMounts=yes"} {
		require.Contains(t, unit, "\n"+setting+"\n", "tasks are anybody's code")
	}
	for _, setting := range []string{"PrivateDevices=yes", "ProtectClock=yes", "DeviceAllow=", "MemoryDenyWriteExecute=yes", "RestrictNamespaces=yes"} {
		require.NotContains(t, unit, "\n"+setting, "GPUs, just-in-time compilers and sandboxes need it open")
	}
	t.Run("Exposure", func(t *testing.T) {
		tool, err := exec.LookPath("systemd-analyze")
		if err != nil {
			rig.Because(t, rig.Tool, "systemd-analyze, whose count is of the settings above")
		}
		out, err := exec.Command(tool, "security", "--offline=true", "--threshold=39", "systemd/gpumux-worker.service").CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}

// The commands of the README put everything in its place that the unit and the worker's
// file name.
func TestSystemd_READMEInstallsEverything(t *testing.T) {
	_, after, ok := strings.Cut(string(read(t, "deploy/README.md")), "## A GPU host")
	require.True(t, ok)
	block := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(after)
	require.NotNil(t, block)
	root, target := t.TempDir(), regexp.MustCompile(` (/\S+)`)
	var others []string
	for line := range strings.Lines(block[1]) {
		words := strings.Fields(line)
		if len(words) < 2 || words[1] != "install" {
			others = append(others, strings.TrimSpace(line))
			continue
		}
		// What make builds is not there yet.
		script := strings.Replace(target.ReplaceAllString(strings.Join(words[1:], " "), " "+root+"$1"), "bin/gpumux-worker", "Makefile", 1)
		install := exec.Command("sh", "-ec", script)
		install.Dir = ".."
		out, err := install.CombinedOutput()
		require.NoError(t, err, "%s: %s", line, out)
	}
	require.Equal(t, "make worker", others[0])
	require.Contains(t, string(read(t, "Makefile")), "$(BIN)/gpumux-worker ./cmd/gpumux-worker")
	unit := string(read(t, "deploy/systemd/gpumux-worker.service"))
	require.Regexp(t, `^sudo useradd .* `+regexp.MustCompile(`(?m)^User=(\w+)$`).FindStringSubmatch(unit)[1]+`$`, others[1])
	require.Equal(t, []string{"sudo systemctl daemon-reload", "sudo systemctl enable --now gpumux-worker"}, others[2:])
	for _, path := range []string{"/usr/local/bin/gpumux", "/etc/gpumux/worker.yaml", "/etc/gpumux/environment", "/etc/systemd/system/gpumux-worker.service"} {
		require.FileExists(t, root+path)
		if strings.HasPrefix(path, "/etc/gpumux/") {
			require.Contains(t, unit, path)
		}
	}
	key, err := os.Stat(root + "/etc/gpumux/environment")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), key.Mode().Perm(), "it may hold a key")
	config, err := config.Load(root + "/etc/gpumux/worker.yaml")
	require.NoError(t, err)
	tasks, err := filepath.Glob(filepath.Join(root, config.Tasks["*"].PythonDir, "*.py"))
	require.NoError(t, err)
	require.NotEmpty(t, tasks, "a worker whose folder of tasks is missing does not start")
}

func TestScripts_Parse(t *testing.T) {
	for _, name := range []string{"temporal/schema.sh", "temporal/namespace.sh"} {
		text := string(read(t, "deploy/"+name))
		require.True(t, strings.HasPrefix(text, "#!/bin/sh\n"), name)
		require.Contains(t, text, "\nset -eu\n", name)
		out, err := exec.Command("sh", "-n", name).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
