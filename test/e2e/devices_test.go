package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/test/programtest"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

// cudaPy copies each item to the device and back through the CUDA driver, and raises what
// a framework would.
const cudaPy = `
import ctypes, os, subprocess, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
begun = False
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError("CUDA error: " + text.value.decode())
def begin():
    global begun
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    begun = True
def square(x):
    if not begun: begin()
    there, size, back = ctypes.c_uint64(), ctypes.c_size_t(8), ctypes.c_int64()
    call("cuMemAlloc_v2", ctypes.byref(there), size)
    call("cuMemcpyHtoD_v2", there, ctypes.byref(ctypes.c_int64(x * x)), size)
    call("cuMemcpyDtoH_v2", ctypes.byref(back), there, size)
    call("cuMemFree_v2", there)
    if x == 1000: open("middle", "w").close()
    return [back.value, os.environ["CUDA_VISIBLE_DEVICES"]]
def either(x):
    # a device that fails in the middle is asked anew each time
    if os.environ["CUDA_VISIBLE_DEVICES"]:
        call("cuInit", 0)
        if x > 1000: open("middle", "w").close()
        if os.path.exists("works again"): open("back", "w").close()
        return square(x)
    if os.path.exists("middle"): open("on the CPU", "w").close()
    while os.path.exists("on the CPU") and not os.path.exists("works again"): time.sleep(0.01)
    time.sleep(0.02)
    return [x * x, ""]
def pair(x):
    # rank 1 is a process of its own on the second device, as torchrun would start it
    code = "import ctypes, sys; c = ctypes.CDLL('libcuda.so.1'); d, h = ctypes.c_int(), ctypes.c_void_p()\n" \
        "assert not (c.cuInit(0) or c.cuDeviceGet(ctypes.byref(d), 1) or c.cuDevicePrimaryCtxRetain(ctypes.byref(h), d))\n" \
        "p = ctypes.c_uint64(); assert not (c.cuCtxSetCurrent(h) or c.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(64 << 20)))\n" \
        "print('holds', flush=True); sys.stdin.read()"
    rank1 = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert rank1.stdout.readline() == "holds\n"
    count = ctypes.c_int()
    got = square(x)
    call("cuDeviceGetCount", ctypes.byref(count))
    time.sleep(0.3)  # the watch looks ten times a second
    rank1.communicate()
    return got + [count.value]
def cursed(x):
    if x == 7: raise RuntimeError("CUDA error: unknown error")
    return square(x)
`

// gpus is a site whose only worker has a pool of all devices of a machine that only
// imitates them. Its log is returned.
func (s *site) gpus(m *gputest.Machine, slots config.Slots, more ...config.Pool) *observer.ObservedLogs {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "cuda.py"), []byte(cudaPy), 0o644))
	c := s.config("gpu", 1)
	c.Pools[0].Devices, c.Pools[0].Slots, c.Metrics.Address = gpu.Selection{"all"}, slots, "127.0.0.1:0"
	c.Pools = append(c.Pools, more...)
	for _, name := range []string{"square", "either", "pair", "cursed"} {
		c.Tasks[name] = config.Task{Python: "cuda.py:" + name}
	}
	return s.imitated(m, c)
}

// imitated starts a worker on a machine that is imitated, and returns its log.
func (s *site) imitated(m *gputest.Machine, c config.Config) *observer.ObservedLogs {
	s.t.Helper()
	inventory, err := gpu.Open(s.t.Context(), gpu.Options{Library: m.Library, IgnoreVisible: true})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { inventory.Close() })
	core, logs := observer.New(zapcore.InfoLevel)
	w, err := workers.New(c, workers.Options{Client: s.client, Inventory: inventory, Log: workers.Zap(zap.New(core)), StopTimeout: time.Second, Grace: time.Second})
	require.NoError(s.t, err)
	serve(s.t, w)
	return logs
}

// machine imitates a host with GPUs for this process, its test's own, and those that it
// starts.
func machine(t *testing.T, gpus ...gputest.GPU) *gputest.Machine {
	m := gputest.New(t, gputest.State{GPUs: gpus})
	t.Setenv("LD_LIBRARY_PATH", m.Folder)
	return m
}

// squares checks that all items but some have their squares, and counts the results of
// each device.
func squares(t *testing.T, results []gpumux.Result, but ...int64) map[string]int {
	t.Helper()
	byDevice := map[string]int{}
	for i, r := range results {
		require.EqualValues(t, i, r.Index)
		if r.Fault != nil {
			require.Contains(t, but, r.Index, "%v", r.Fault)
			continue
		}
		var got []any
		require.NoError(t, json.Unmarshal(r.Value, &got))
		require.EqualValues(t, i*i, got[0])
		byDevice[got[1].(string)]++
	}
	return byDevice
}

// scraped are the metrics of the worker that wrote the log.
func scraped(t *testing.T, logs *observer.ObservedLogs) string {
	t.Helper()
	url := logs.FilterMessage("metrics are served").All()[0].ContextMap()["url"].(string)
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(text)
}

func device(n int) string { return fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", n) }

// A sick device fails its items at once, so without a probe it would take more of them
// than any other.
func TestDevices_SickOnesCostNoItem(t *testing.T) {
	if !own(t) {
		return
	}
	m := machine(t, gputest.GPU{Sick: gputest.Sick{Init: 802}}, gputest.GPU{}, gputest.GPU{},
		gputest.GPU{Instances: []gputest.Instance{{}, {Number: 1}}}, gputest.GPU{}, gputest.GPU{}, gputest.GPU{Slow: 150}, gputest.GPU{})
	s := newSite(t)
	logs := s.gpus(m, 1)
	require.Equal(t, 1, logs.FilterMessage("device cordoned").Len())
	require.Contains(t, fmt.Sprint(logs.FilterMessage("device cordoned").All()[0].ContextMap()), "nvidia-fabricmanager")
	require.Equal(t, 9, logs.FilterMessage("device probed").Len())

	run := s.start(gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 2_000}, Ladder: []string{"gpu"}, Output: "out"})
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(s.dir, "middle"))
		return err == nil
	}, time.Minute, time.Millisecond)
	m.Update(func(state *gputest.State) { state.GPUs[5].Sick.Copy = 999 })
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.EqualValues(t, 2_000, sum.Succeeded, "%v", sum.Faults)
	by := squares(t, s.results(sum))
	require.Zero(t, by[device(0)], "it was sick from the start")
	require.Len(t, by, 8, "all others had their share: %v", by)
	require.Equal(t, 2, logs.FilterMessage("device cordoned").Len())
	sum, err := s.run(gpumux.MapInput{Task: "either", Range: &gpumux.Range{End: 300}, Ladder: []string{"gpu"}})
	require.NoError(t, err)
	by = squares(t, s.results(sum))
	require.Zero(t, by[device(0)]+by[device(5)], "nothing goes to either after its probe: %v", by)

	metrics := scraped(t, logs)
	for _, line := range []string{
		`gpumux_cordons_total{pool="gpu",reason="probe"} 2`, `gpumux_device_cordoned{device="` + device(1) + `",pool="gpu"} 0`,
		`gpumux_device_cordoned{device="` + device(5) + `",pool="gpu"} 1`,
	} {
		require.Contains(t, metrics, line+"\n")
	}
	require.Regexp(t, `(?m)^gpumux_probe_seconds_count\{outcome="ok"\} [1-9]`, metrics)
	require.Regexp(t, `(?m)^gpumux_probe_seconds_count\{outcome="sick"\} [1-9]`, metrics)

	t.Run("one that works again comes back", func(t *testing.T) {
		m.Update(func(state *gputest.State) { state.GPUs[0].Sick = gputest.Sick{} })
		require.Eventually(t, func() bool { return logs.FilterMessage("device works again").Len() == 1 }, time.Minute, 10*time.Millisecond)
	})
}

// An item that fails wherever it runs is to blame itself, although its words blame the
// device.
func TestDevices_AFaultThatFollowsTheItemIsTheItems(t *testing.T) {
	if !own(t) {
		return
	}
	m := machine(t, gputest.GPU{}, gputest.GPU{}, gputest.GPU{})
	s := newSite(t)
	logs := s.gpus(m, 1)
	sum, err := s.run(gpumux.MapInput{Task: "cursed", Range: &gpumux.Range{End: 100}, Ladder: []string{"gpu"}})
	require.NoError(t, err)
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultCrash: 1}, sum.Faults)
	results := s.results(sum)
	squares(t, results, 7)
	require.Contains(t, results[7].Fault.Message, "unknown error")
	require.Zero(t, logs.FilterMessage("device cordoned").Len(), "the probes passed")
	failed := map[string]bool{}
	for _, entry := range logs.FilterMessage("a call failed").All() {
		failed[entry.ContextMap()["device"].(string)] = true
	}
	require.GreaterOrEqual(t, len(failed), 2, "it was tried on another device: %v", failed)
}

// A slot of two GPUs has the next two of those that are named. Its process and its
// children see both, and what they hold there counts.
func TestDevices_ASlotOfTwoGPUs(t *testing.T) {
	if !own(t) {
		return
	}
	m := machine(t, make([]gputest.GPU, 4)...)
	s := newSite(t)
	s.gpus(m, 1, config.Pool{Name: "pairs", Devices: gpu.Selection{"0", "2", "1", "3"}, GPUsPerSlot: 2, Memory: 8 << 30})
	sum, err := s.run(gpumux.MapInput{Task: "pair", Range: &gpumux.Range{End: 4}, Ladder: []string{"pairs"}})
	require.NoError(t, err)
	for _, r := range s.results(sum) {
		require.Nil(t, r.Fault)
		var got []any
		require.NoError(t, json.Unmarshal(r.Value, &got))
		require.Contains(t, []string{device(0) + "," + device(2), device(1) + "," + device(3)}, got[1])
		require.EqualValues(t, 2, got[2])
	}
	require.Greater(t, sum.Peak.Max(), gpumux.Size(2*528<<20), "two contexts and what is held beside them")
}

func TestDevices_DoctorTriesThem(t *testing.T) {
	t.Parallel()
	m := gputest.Prepare(t, gputest.State{GPUs: []gputest.GPU{{}, {Sick: gputest.Sick{Init: 802}}}})
	path, err := programtest.Binary()
	require.NoError(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "gpumux.yaml")
	require.NoError(t, os.WriteFile(file, []byte("store: file://"+dir+"\npools: [{name: gpu, devices: all}]\ntasks: {t: {command: [cat]}}\n"), 0o644))
	for name, arguments := range map[string][]string{"doctor": {"doctor"}, "worker --check": {"worker", "-f", file, "--check"}} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(path, arguments...)
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+m.Folder, "XDG_STATE_HOME="+dir)
			said, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Regexp(t, `(?m)^ok +device 0 .*16GiB free of 16GiB; works; a context takes 528MiB and \d+\.\d\d s$`, string(said))
			require.Regexp(t, `(?m)^FAILED +device 1 .*; cuInit failed: system not yet initialized \(CUDA error 802\)\n +-> .*nvidia-fabricmanager`, string(said))
		})
	}
}

// Another user's process fills a device. Its items move to the other one and lose no
// attempt; work that has no other waits, and the fault says for what.
func TestDevices_WhatOthersFillCostsNoItem(t *testing.T) {
	if !own(t) {
		return
	}
	m := machine(t, gputest.GPU{}, gputest.GPU{})
	other := exec.Command("sleep", "600")
	require.NoError(t, other.Start())
	gone := false
	end := func() {
		if !gone {
			_ = other.Process.Kill()
			_ = other.Wait()
		}
		gone = true
	}
	defer end()
	m.Allocate(other.Process.Pid, device(0), 16<<30-1<<20)
	s := newSite(t)
	logs := s.gpus(m, 1, config.Pool{Name: "budgets", Devices: gpu.Selection{"all"}, Slots: 2, Memory: 4 << 30},
		config.Pool{Name: "full", Devices: gpu.Selection{"0"}, Memory: 4 << 30})
	sum, err := s.run(gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 40}, Ladder: []string{"budgets"}, Output: "moved"})
	require.NoError(t, err)
	require.EqualValues(t, 40, sum.Succeeded, "%v", sum.Faults)
	require.Equal(t, map[string]int{device(1): 40}, squares(t, s.results(sum)))

	run := s.start(gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 4}, Ladder: []string{"full"}, Output: "waits"})
	why := func() []string {
		var said []string
		for _, entry := range logs.FilterMessage("device cordoned").All() {
			said = append(said, fmt.Sprint(entry.ContextMap()["why"]))
		}
		return said
	}
	require.Eventually(t, func() bool { return len(why()) > 0 }, time.Minute, 10*time.Millisecond)
	require.Regexp(t, fmt.Sprintf(`^others hold 16GiB of GPU 0 \(process %d .*16GiB\) and leave less than the budget of a slot, 4GiB$`, other.Process.Pid), why()[0])
	end()
	require.NoError(t, run.Get(t.Context(), &sum))
	require.EqualValues(t, 4, sum.Succeeded, "%v", sum.Faults)
}

// A driver that lists processes with 0 bytes watches no budget, whatever the task is.
func TestDevices_ADriverThatTellsNoBytes(t *testing.T) {
	if !own(t) {
		return
	}
	m := gputest.New(t, gputest.State{Driver: "560.35.05", Lists: gputest.ZeroBytes, GPUs: make([]gputest.GPU, 1)})
	t.Setenv("LD_LIBRARY_PATH", m.Folder)
	s := newSite(t)
	logs := s.gpus(m, 1, config.Pool{Name: "budgets", Devices: gpu.Selection{"all"}, Memory: 4 << 30})
	said := logs.FilterMessageSnippet("budget 4GiB enforced by: framework caps only").All()
	require.Len(t, said, 1)
	require.Contains(t, said[0].ContextMap()["why"], "hostPID: true")
	sum, err := s.run(gpumux.MapInput{Task: "pair", Range: &gpumux.Range{End: 1}, Ladder: []string{"budgets"}, Output: "out"})
	require.NoError(t, err)
	require.Nil(t, sum.Peak, "nothing was seen of it")
}
