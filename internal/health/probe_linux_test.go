package health

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/gputest"
)

const uuid = "GPU-00000000-0000-0000-0000-000000000000"

// try probes the first device of a machine that only imitates one.
func try(t *testing.T, limit time.Duration, device gputest.GPU) (Probe, *gputest.Machine) {
	m := gputest.Prepare(t, gputest.State{GPUs: []gputest.GPU{device, {}}})
	t.Setenv("LD_LIBRARY_PATH", m.Folder)
	return Prober{Python: os.Getenv("GPUMUX_TEST_PYTHON"), Limit: limit}.Try(t.Context(), uuid), m
}

func TestProber_ADeviceThatWorks(t *testing.T) {
	p, _ := try(t, 0, gputest.GPU{Total: 80 << 30})
	require.True(t, p.OK, "%+v", p)
	require.Equal(t, uuid, p.Device)
	require.EqualValues(t, 528<<20, p.Context)
	require.EqualValues(t, 80<<30, p.Total)
	require.EqualValues(t, 80<<30-529<<20, p.Free)
	require.Positive(t, p.Seconds)
	require.Regexp(t, `^works; a context takes 528MiB and \d+\.\d\d s$`, p.String())
}

// A driver that lists processes without what they hold is told from one that lists none.
func TestProber_ADriverThatDoesNotTellWhatAProcessHolds(t *testing.T) {
	for name, c := range map[string]struct {
		state gputest.State
		blind bool
	}{
		"all":                {gputest.State{}, false},
		"0 bytes":            {gputest.State{Lists: gputest.ZeroBytes}, true},
		"unknown bytes":      {gputest.State{Lists: gputest.UnknownBytes}, true},
		"nobody":             {gputest.State{Lists: gputest.NoProcesses}, true},
		"the host's numbers": {gputest.State{PIDShift: 100_000}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.state.GPUs = []gputest.GPU{{}}
			t.Setenv("LD_LIBRARY_PATH", gputest.Prepare(t, c.state).Folder)
			p := Prober{Python: os.Getenv("GPUMUX_TEST_PYTHON")}.Try(t.Context(), uuid)
			require.True(t, p.OK, "%+v", p)
			require.Equal(t, c.blind, p.Blind)
			require.Equal(t, c.blind, p.Context == 0)
			if c.blind {
				require.Regexp(t, `^works; a context takes \d+\.\d\d s, and the driver does not tell what a process holds$`, p.String())
			}
		})
	}
	// A process without NVML learns nothing of the lists.
	m := gputest.Prepare(t, gputest.State{GPUs: []gputest.GPU{{}}})
	require.NoError(t, os.Remove(m.Folder+"/libnvidia-ml.so.1"))
	require.NoError(t, os.WriteFile(m.Folder+"/libnvidia-ml.so.1", nil, 0o644))
	t.Setenv("LD_LIBRARY_PATH", m.Folder)
	p := Prober{Python: os.Getenv("GPUMUX_TEST_PYTHON")}.Try(t.Context(), uuid)
	require.True(t, p.OK, "%+v", p)
	require.False(t, p.Blind)
	require.Zero(t, p.Context)
}

func TestProber_ADeviceThatDoesNot(t *testing.T) {
	for name, test := range map[string]struct {
		device gputest.GPU
		says   string
		hint   string
	}{
		"fabric manager": {gputest.GPU{Sick: gputest.Sick{Init: 802}}, "cuInit failed: system not yet initialized (CUDA error 802)", "fabricmanager"},
		"updated driver": {gputest.GPU{Sick: gputest.Sick{Init: 803}}, "cuInit failed: system has unsupported display driver / cuda driver combination (CUDA error 803)", "restart the worker"},
		"unknown":        {gputest.GPU{Sick: gputest.Sick{Init: 999}}, "cuInit failed: unknown error (CUDA error 999)", "nvidia-smi"},
		"context":        {gputest.GPU{Sick: gputest.Sick{Context: 46}}, "cuDevicePrimaryCtxRetain failed: CUDA-capable device(s) is/are busy or unavailable (CUDA error 46)", "another process"},
		"prohibited":     {gputest.GPU{Mode: 2}, "cuDevicePrimaryCtxRetain failed: CUDA-capable device(s) is/are busy or unavailable (CUDA error 46)", "another process"},
		"memory":         {gputest.GPU{Sick: gputest.Sick{Copy: 214}}, "cuMemcpyHtoD failed: uncorrectable ECC error encountered (CUDA error 214)", "nvidia-smi"},
		"gone":           {gputest.GPU{UUID: "GPU-another"}, "cuInit failed: no CUDA-capable device is detected (CUDA error 100)", "nvidia-smi"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := try(t, 0, test.device)
			require.True(t, p.Sick(), "%+v", p)
			require.Equal(t, test.says, p.String())
			require.Contains(t, p.Hint(), test.hint)
		})
	}
}

// A probe is a process like a slot's, also where MPS serves those.
func TestProber_ADaemonThatIsGone(t *testing.T) {
	m := gputest.Prepare(t, gputest.State{GPUs: []gputest.GPU{{Mode: 3}}})
	t.Setenv("LD_LIBRARY_PATH", m.Folder)
	p := Prober{Python: os.Getenv("GPUMUX_TEST_PYTHON")}
	require.True(t, p.Try(t.Context(), uuid).OK)
	p.Env = map[string]string{"CUDA_MPS_PIPE_DIRECTORY": t.TempDir()}
	found := p.Try(t.Context(), uuid)
	require.Equal(t, 805, found.Code, "%+v", found)
	require.Contains(t, found.Hint(), "CUDA_MPS_PIPE_DIRECTORY")
}

func TestProber_ADeviceThatHangs(t *testing.T) {
	p, _ := try(t, 500*time.Millisecond, gputest.GPU{Sick: gputest.Sick{Context: gputest.Hangs}})
	require.True(t, p.Sick())
	require.Equal(t, "CUDA did not answer within 500ms", p.String())
}

// Its neighbours hold what there is: that is no sickness.
func TestProber_ADeviceThatIsFull(t *testing.T) {
	m := gputest.Prepare(t, gputest.State{GPUs: []gputest.GPU{{Total: 16 << 30}}})
	t.Setenv("LD_LIBRARY_PATH", m.Folder)
	holder := exec.Command("sleep", "60")
	require.NoError(t, holder.Start())
	defer holder.Wait()
	defer holder.Process.Kill()
	m.Allocate(holder.Process.Pid, uuid, 16<<30-1<<20)
	p := Prober{Python: os.Getenv("GPUMUX_TEST_PYTHON")}.Try(t.Context(), uuid)
	require.False(t, p.Sick(), "%+v", p)
	require.Equal(t, "answers, and others hold all of its memory", p.String())
}

func TestProber_WhatCannotBeTriedIsNotSick(t *testing.T) {
	p := Prober{Python: "/nonexistent/python"}.Try(t.Context(), uuid)
	require.False(t, p.Sick())
	require.Contains(t, p.Untried, "/nonexistent/python")

	t.Setenv("LD_LIBRARY_PATH", t.TempDir())
	p = Prober{Python: os.Getenv("GPUMUX_TEST_PYTHON")}.Try(t.Context(), uuid)
	if p.OK {
		return // this host has a driver
	}
	require.Contains(t, p.Untried, "libcuda.so.1")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NotEmpty(t, Prober{}.Try(ended, uuid).Untried)
}

func TestProber_NothingIsLeft(t *testing.T) {
	_, m := try(t, 2*time.Second, gputest.GPU{Sick: gputest.Sick{Alloc: gputest.Hangs}})
	entries, err := os.ReadDir(m.File + ".d")
	require.NoError(t, err)
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && !strings.HasPrefix(e.Name(), ".") {
			require.NoFileExists(t, "/proc/"+strconv.Itoa(pid)+"/status")
		}
	}
	require.NotEmpty(t, entries, "it had a context")
}
