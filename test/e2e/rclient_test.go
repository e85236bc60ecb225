package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// rShell is a shell whose R has the package gpumux, beside stand-ins for others.
type rShell struct{ *shell }

func newRShell(t *testing.T, standIns ...string) rShell {
	t.Helper()
	rig.WithoutR(t, "processx")
	binary := programtest.Binary(t)
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
	output := string(out)
	for _, name := range []string{"call.Rout.fail", "call.Rout", "map.Rout.fail", "map.Rout"} {
		if tests, err := os.ReadFile(s.path("gpumux.Rcheck/tests/" + name)); err == nil {
			output += string(tests)
		}
	}
	require.NoError(t, err, output)
	require.NotContains(t, output, "WARNING", output)
	require.NotRegexp(t, `(?m)^skipped`, output)
}

// slowR squares numbers slowly, writes down which, and draws random numbers.
const slowR = `
library(gpumux)
folder <- getwd()
slow <- function(x) {
  cat(x, "\n", file = file.path(folder, "ran"), append = TRUE)
  Sys.sleep(0.2)
  c(x^2, rnorm(1))
}
gpu_daemons(1)
`

// ran is how many items of slowR began.
func (s rShell) ran() int {
	text, _ := os.ReadFile(s.path("ran"))
	return strings.Count(string(text), "\n")
}

// Nothing is left of a session that is killed in the middle, its calls included, and the
// same map runs only what has no result, with the same random numbers.
func TestR_KilledSessionGoesOn(t *testing.T) {
	t.Parallel()
	s := newRShell(t)
	s.write("call.R", slowR+`
held <- gpu_call(Sys.sleep, 600)
set.seed(1)
results <- gpu_map(1:40, slow)
set.seed(1)
again <- gpu_map(1:40, function(x) c(x^2, rnorm(1)))
print(c(sum(vapply(results, "[", 0, 1L)), identical(results, again)))
`)
	begun := s.r("Rscript", "call.R")
	require.NoError(t, begun.Start())
	rig.Wait(t, func() bool { return s.ran() >= 5 }, time.Minute, 20*time.Millisecond, "some items ran")
	require.NoError(t, begun.Process.Kill())
	_ = begun.Wait()
	rig.Wait(t, func() bool { return len(s.running()) == 0 }, time.Minute, 50*time.Millisecond, "nothing of it runs")
	first := s.ran()
	require.Less(t, first, 40)

	out, err := s.r("Rscript", "call.R").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), fmt.Sprintf("[1] %d     1\n", 40*41*81/6))
	require.Less(t, s.ran(), 40+first, "it began anew")
	require.Empty(t, s.state())
	left, err := os.ReadDir(s.path("cache/R/gpumux"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// Hints of faults are in the words of the R package.
func TestR_SaysItInR(t *testing.T) {
	t.Parallel()
	rig.WithoutR(t)
	for want, e := range map[string]diagnosis.Evidence{
		"give `memory_per_worker_mb = 1280` or more (it was ended on its way up), or use smaller items": {
			OverBudget: true, Budget: 1 << 30, Peak: 1 << 30},
		"give more `memory_per_worker_mb` or fewer `n_workers`, or use smaller items": {Class: "torch.OutOfMemoryError"},
		"use smaller items, or give the slot the whole device (one of `n_workers` for each GPU)": {
			Class: "torch.OutOfMemoryError", Message: "CUDA out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 8.00 GiB", Budget: 4 << 30},
		"make the item smaller, choose fewer `n_workers`, or give `memory_per_worker_mb`, so that each slot has a budget that fits; " +
			"the worker keeps the rest of the host alive": {HostLeft: 1},
		"see in the tail and the traceback what the start waits for, such as a download; a start may take 5 minutes, so do what takes " +
			"longer in the function": {TimedOut: true, Loading: true},
		"keep the task from closing or replacing descriptors that it has not opened; libraries that make a daemon of the process do it: " +
			"start those as a program of their own": {Exited: true, ExitCode: diagnosis.WireLost},
		"see what it says to `Rscript --version`, and start the session with another R":              {Exited: true, ExitCode: 1, Silent: "Rscript"},
		"take the call that ends the process out of what the attached packages run at their start":   {Exited: true, Loading: true},
		"the task ends its own process; return a value or stop() instead":                            {Exited: true},
		"something in the task ends the process (a C library's exit); the tail shows its last words": {Exited: true, ExitCode: 1},
		"the slot is on the CPU and hides all GPUs from the task: choose slots of GPUs with gpu_daemons(), or let the task compute on the CPU": {
			Message: "No CUDA GPUs are available", Class: "RuntimeError", OnCPU: true, Device: "CPU"},
	} {
		cmd := exec.CommandContext(t.Context(), "Rscript", "-e", `for (file in c("words.R", "gpu_daemons.R")) source(file); cat(in_r(readLines("stdin")))`)
		cmd.Dir, cmd.Stdin = filepath.Join(top(t), "clients/r/R"), strings.NewReader(diagnosis.Diagnose(e).Fault.Hint+"\n")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, want, string(out))
	}
}

// Ctrl-C ends a map without a word, which goes on by the same call, and no call.
func TestR_Interrupt(t *testing.T) {
	t.Parallel()
	s := newRShell(t)
	s.write("call.R", slowR+`
pid <- gpu_value(gpu_call(Sys.getpid))
print(tryCatch(gpu_map(1:20, slow), interrupt = function(i) "interrupted"))
print(sum(vapply(gpu_map(1:20, slow), "[", 0, 1L)))
print(pid == gpu_value(gpu_call(Sys.getpid)))
`)
	var stdout, stderr bytes.Buffer
	r := s.r("Rscript", "call.R")
	r.Stdout, r.Stderr, r.SysProcAttr = &stdout, &stderr, &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, r.Start())
	rig.Wait(t, func() bool { return s.ran() >= 5 }, time.Minute, 20*time.Millisecond, "some items ran")
	require.NoError(t, syscall.Kill(-r.Process.Pid, syscall.SIGINT), "as a terminal does")
	require.NoError(t, r.Wait(), "%s", &stderr)
	require.Equal(t, "[1] \"interrupted\"\n[1] 2870\n[1] TRUE\n", stdout.String())
	require.NotRegexp(t, `(?m)^[^n]`, stderr.String(), "notes alone")
	require.Less(t, s.ran(), 25, "it began anew")
	rig.Wait(t, func() bool { return len(s.running()) == 0 }, time.Minute, 50*time.Millisecond, "nothing of it runs")
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
