package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/devserver/test/programtest"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// rShell is a shell whose R has the package gpumux, beside stand-ins for others.
type rShell struct{ *shell }

func newRShell(t *testing.T, standIns ...string) rShell {
	t.Helper()
	rig.WithoutR(t)
	binary, err := programtest.Binary()
	require.NoError(t, err)
	s := rShell{newShell(t)}
	require.NoError(t, os.Mkdir(s.path("library"), 0o755))
	s.env = append(s.env, "GPUMUX_BINARY="+binary, "R_LIBS="+s.path("library"), "R_USER_CACHE_DIR="+s.path("cache"))
	packages := []string{filepath.Join(top(t), "clients/r")}
	for _, name := range standIns {
		path, err := filepath.Abs(filepath.Join("testdata/r", name))
		require.NoError(t, err)
		packages = append(packages, path)
	}
	out, err := s.r(append([]string{"R", "CMD", "INSTALL", "--no-docs", "--library=" + s.path("library")}, packages...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return s
}

func (s rShell) r(words ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), words[0], words[1:]...)
	cmd.Dir, cmd.Env = s.dir, s.env
	return cmd
}

func TestLong_RPackageChecks(t *testing.T) {
	t.Parallel()
	s := newRShell(t)
	out, err := s.r("R", "CMD", "build", filepath.Join(top(t), "clients/r")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	built, err := filepath.Glob(s.path("gpumux_*.tar.gz"))
	require.NoError(t, err)
	require.Len(t, built, 1)
	// It needs a UTF-8 locale, and asks no repository of packages.
	s.env = append(s.env, "LC_ALL=C.UTF-8", "_R_CHECK_XREFS_REPOSITORIES_=file://"+s.dir)
	out, err = s.r("R", "CMD", "check", "--no-manual", built[0]).CombinedOutput()
	said := string(out)
	for _, name := range []string{"map.Rout.fail", "map.Rout"} {
		if tests, err := os.ReadFile(s.path("gpumux.Rcheck/tests/" + name)); err == nil {
			said += string(tests)
		}
	}
	require.NoError(t, err, said)
	require.NotContains(t, said, "WARNING", said)
	require.NotRegexp(t, `(?m)^skipped`, said)
}

// Nothing is left of a session that is killed in the middle, and the same call runs only
// what has no result.
func TestR_KilledSessionGoesOn(t *testing.T) {
	t.Parallel()
	s := newRShell(t)
	s.write("call.R", `
library(gpumux)
slow <- function(x) {
  cat(x, "\n", file = file.path(folder, "ran"), append = TRUE)
  Sys.sleep(0.2)
  x^2
}
folder <- getwd()
gpu_daemons(1)
print(sum(unlist(gpu_map(1:40, slow))))
`)
	begun := s.r("Rscript", "call.R")
	require.NoError(t, begun.Start())
	ran := func() int {
		text, _ := os.ReadFile(s.path("ran"))
		return strings.Count(string(text), "\n")
	}
	rig.Wait(t, func() bool { return ran() >= 5 }, time.Minute, 20*time.Millisecond, "some items ran")
	require.NoError(t, begun.Process.Kill())
	_ = begun.Wait()
	rig.Wait(t, func() bool { return len(s.running()) == 0 }, time.Minute, 50*time.Millisecond, "nothing of it runs")
	first := ran()
	require.Less(t, first, 40)

	out, err := s.r("Rscript", "call.R").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), fmt.Sprint("[1] ", 40*41*81/6))
	require.Less(t, ran(), 40+first, "it began anew")
	require.Empty(t, s.state())
	left, err := os.ReadDir(s.path("cache/R/gpumux"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// running are the processes that have the shell's folder in their environment.
func (s rShell) running() (found []string) {
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(s.t, err)
	for _, path := range environments {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), s.dir+"/library") {
			found = append(found, path)
		}
	}
	return found
}

// originalVignette names a file with the code of the original's vignette, to be run in
// place of the example with its calls.
const originalVignette = "GPUMUX_TEST_VIGNETTE"

// The calls of the original's vignette run on slots of a GPU, with stand-ins for the
// packages around it.
func TestLong_RVignetteRuns(t *testing.T) {
	m := machine(t, gputest.GPU{})
	s := newRShell(t, "mirai", "purrr", "tensorflow", "microbenchmark", "knitr")
	s.env = append(s.env, m.Env()...)
	if original := os.Getenv(originalVignette); original != "" {
		out, err := s.r("Rscript", original).CombinedOutput()
		t.Logf("%s", out)
		require.NoError(t, err)
		return
	}
	out, err := s.r("Rscript", filepath.Join(top(t), "examples/vignette/vignette.R"), "1").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, task := range []string{"heavy", "medium", "light"} {
		for _, way := range []string{"Persistent", "Proxy", "Sequential GPU", "CPU"} {
			require.Regexp(t, task+` +`+way+` +\d+\.\d+ s`, string(out))
		}
	}
}
