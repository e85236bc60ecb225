package deploy_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the renders of the chart anew")

// helm runs helm in deploy/helm.
func helm(t *testing.T, args ...string) []byte {
	t.Helper()
	command := exec.Command(tool(t, "helm"), args...)
	command.Dir = "helm"
	var mistakes bytes.Buffer
	command.Stderr = &mistakes
	out, err := command.Output()
	require.NoError(t, err, "%s%s", out, &mistakes)
	return out
}

// render is what helm makes of the chart with files of values.
func render(t *testing.T, values ...string) []byte {
	t.Helper()
	args := []string{"template", "gpumux", "gpumux", "--namespace", "gpumux"}
	for _, file := range values {
		args = append(args, "-f", file)
	}
	return helm(t, args...)
}

// documents are the objects of a render, by kind and name.
func documents(t *testing.T, text []byte) map[string]any {
	t.Helper()
	all := map[string]any{}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all[fmt.Sprint(object["kind"], object["metadata"].(map[string]any)["name"])] = object
	}
}

func TestHelm_Lint(t *testing.T) {
	helm(t, "lint", "--strict", "gpumux")
	helm(t, "lint", "--strict", "gpumux", "-f", "testdata/full.yaml")
}

// The renders are what the other tests read, and the first is there for those without
// Helm.
func TestHelm_Renders(t *testing.T) {
	for name, values := range map[string][]string{plain: nil, full: {"mps.yaml", "testdata/full.yaml"}} {
		made := append([]byte("# Made from deploy/helm: make deploy-check TESTFLAGS=-update\n"), render(t, values...)...)
		if *update {
			require.NoError(t, os.WriteFile(name, made, 0o644))
		}
		require.Equal(t, documents(t, made), documents(t, read(t, "deploy/"+name)), "%s: make deploy-check TESTFLAGS=-update", name)
	}
}

func TestHelm_WorkersThatShare(t *testing.T) {
	for _, sharing := range []string{"mps", "mig"} {
		file := documents(t, render(t, sharing+".yaml"))["ConfigMapgpumux-gpu"].(map[string]any)["data"].(map[string]any)["worker.yaml"].(string)
		c := loads(t, sharing, []byte(file))
		require.Len(t, c.Pools, 1)
		require.EqualValues(t, sharing, c.Pools[0].Sharing)
		require.Equal(t, "gpu", c.Pools[0].Name)
	}
}

// A value that the chart does not know is a mistake, as a field of a worker's file is.
func TestHelm_RefusesUnknownValues(t *testing.T) {
	for _, wrong := range []string{"workerz=1", "temporal.adress=x", "workers.cpu.replica=1", "metrics.from=null"} {
		command := exec.Command(tool(t, "helm"), "template", "gpumux", "helm/gpumux", "--set", wrong)
		out, err := command.CombinedOutput()
		require.Error(t, err, wrong)
		require.Contains(t, string(out), "values don't meet the specifications", wrong)
	}
}
