package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// on gives a shell a machine with GPUs.
func (s *shell) on(gpus ...gputest.GPU) *gputest.Machine {
	s.t.Helper()
	m := gputest.Prepare(s.t, gputest.State{GPUs: gpus})
	s.env = append(s.env, m.Env()...)
	s.write("place.py", "import os, time\ndef place(x): return os.environ['CUDA_VISIBLE_DEVICES']\n"+
		"def wait(x):\n    while not os.path.exists('open'): time.sleep(0.01)\n    return place(x)\n")
	return m
}

func (s *shell) places(name string) (values []string) {
	for _, line := range s.lines(s.file(name)) {
		values = append(values, strings.Trim(string(line["value"]), `"`))
	}
	return values
}

func TestPlaces_AGPUThatCannotBeUsedEndsTheCommand(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	p := s.run(0, "map", "step.py:double", "--range", "0:2", "--local", "--out", "1.jsonl")
	require.Contains(t, p.stderr.String(), "note: the CPU runs it: ")
	p = s.run(0, "map", "step.py:double", "--range", "0:2", "--local", "--out", "2.jsonl", "-q")
	require.Empty(t, p.stderr.String())

	s.on(gputest.GPU{})
	s.env = append(s.env, "CUDA_VISIBLE_DEVICES=7")
	for _, command := range [][]string{
		{"map", "place.py:place", "--range", "0:2", "--local"}, {"map", "place.py:place", "--range", "0:2", "--local", "--pool", "gpu,cpu"},
		{"stream", "place.py:place"}, {"dev", "--port", "0"},
	} {
		p := s.run(3, command...)
		require.Contains(t, p.stderr.String(), `gpumux: CUDA_VISIBLE_DEVICES points to a GPU that cannot be used: 1 of 1 devices are hidden by `+
			`CUDA_VISIBLE_DEVICES="7"; --devices cpu runs it on the CPU`)
		require.Empty(t, p.stdout.String())
	}
	require.Empty(t, s.state())
	p = s.begin("doctor")
	require.NotZero(t, p.code())
	require.Regexp(t, `(?m)^FAILED +gpu +CUDA_VISIBLE_DEVICES points to a GPU`, p.stdout.String())
	for _, place := range [][]string{{"--devices", "cpu"}, {"--pool", "cpu"}} {
		p = s.run(0, append([]string{"map", "place.py:place", "--range", "0:2", "--local", "--out", "cpu.jsonl"}, place...)...)
		require.NotContains(t, p.stderr.String(), "note:")
		require.Equal(t, []string{"", ""}, s.places("cpu.jsonl"))
	}
}

// The driver does not answer about one GPU, ever.
func TestPlaces_AGPUThatHangsIsLeftOut(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.on(gputest.GPU{}, gputest.GPU{Slow: 3_600_000})
	for _, command := range [][]string{
		{"map", "place.py:place", "--range", "0:2", "--local"}, {"worker", "-f", "gpumux.yaml"},
	} {
		s.write("gpumux.yaml", "pools: [{name: gpu}]\ntasks: {t: {command: [cat]}}\n")
		p := s.begin(command...)
		rig.Wait(t, func() bool {
			maps, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Process.Pid), "maps"))
			return strings.Contains(string(maps), "libnvidia-ml")
		}, time.Minute, time.Millisecond, "it asks the driver")
		require.NoError(t, p.Process.Signal(syscall.SIGINT))
		require.Equal(t, 130, p.code(), "%v\n%s", command, &p.stderr)
	}
	p := s.run(0, "map", "place.py:place", "--range", "0:4", "--local", "--out", "out.jsonl")
	require.Equal(t, 1, strings.Count(p.stderr.String(), "note: a GPU of this machine is not used: GPU 1 left out: "))
	for _, device := range s.places("out.jsonl") {
		require.Equal(t, "GPU-00000000-0000-0000-0000-000000000000", device)
	}
}

func TestPlaces_GPUsThatOthersFill(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.on(gputest.GPU{Total: 24 << 30, Free: 2 << 30, Processes: []gputest.Process{{PID: 4711, Memory: 22 << 30}}}, gputest.GPU{Total: 24 << 30, Free: 24 << 30})
	p := s.begin("map", "place.py:wait", "--range", "0:8", "--local", "--id", "full", "--slots", "4", "--memory", "4GiB", "--out", "full.jsonl")
	const note = "pool gpu: others hold 22GiB of GPU 0 (process 4711 22GiB) and leave less than the budget of a slot, 4GiB"
	rig.Wait(t, func() bool { return strings.Contains(p.stderr.String(), "note: "+note) }, time.Minute, 10*time.Millisecond, "it says so")
	s.write("open", "")
	require.Zero(t, p.code(), "%s", &p.stderr)
}

// The only device fails its probe: the map waits, and says for what.
func TestPlaces_AMapThatWaitsForADevice(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.on(gputest.GPU{Sick: gputest.Sick{Init: 802}})
	p := s.begin("map", "place.py:place", "--range", "0:4", "--local", "--id", "sick", "--out", "out.jsonl")
	rig.Wait(t, func() bool { return strings.Contains(p.stderr.String(), "note: the map waits: ") }, time.Minute, 10*time.Millisecond, "it says so")
	require.Regexp(t, `note: the map waits: device GPU-0.* of pool gpu at .* gets no work: a probe of GPU-0.* found: cuInit failed`, p.stderr.String())
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	require.Equal(t, 130, p.code())
}
