package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
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
    while not os.path.exists("seen"): time.sleep(0.01)
    rank1.communicate()
    return got + [count.value]
def cursed(x):
    if x == 7: raise RuntimeError("CUDA error: unknown error")
    return square(x)
`

// gpus is a site whose only worker has a pool of all devices of a machine that only
// imitates them. The worker and its log are returned.
func (s *site) gpus(m *gputest.Machine, slots config.Slots, more ...config.Pool) (*workers.Worker, *observer.ObservedLogs) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "cuda.py"), []byte(cudaPy), 0o644))
	c := s.config("gpu", 1)
	c.Pools[0].Devices, c.Pools[0].Slots, c.Metrics = gpu.Selection{"all"}, slots, "127.0.0.1:0"
	c.Pools = append(c.Pools, more...)
	for _, name := range []string{"square", "either", "pair", "cursed"} {
		c.Tasks[name] = config.Task{Python: "cuda.py:" + name}
	}
	return s.imitated(m, c)
}

// imitated starts a worker on a machine that is imitated, and returns its log.
func (s *site) imitated(m *gputest.Machine, c config.Config) (*workers.Worker, *observer.ObservedLogs) {
	s.t.Helper()
	inventory, err := gpu.Open(s.t.Context(), gpu.Options{Library: m.Library, IgnoreVisible: true})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { inventory.Close() })
	core, logs := observer.New(zapcore.InfoLevel)
	w, err := workers.New(c, workers.Options{Client: s.client, Inventory: inventory, Log: zap.New(core), StopTimeout: time.Second, Grace: time.Second})
	require.NoError(s.t, err)
	serve(s.t, w)
	return w, logs
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
	if !ownProcess(t) {
		return
	}
	m := machine(t, gputest.GPU{Sick: gputest.Sick{Init: 802}}, gputest.GPU{}, gputest.GPU{},
		gputest.GPU{Instances: []gputest.Instance{{}, {Number: 1}}}, gputest.GPU{}, gputest.GPU{}, gputest.GPU{Slow: 150}, gputest.GPU{})
	s := newSite(t)
	w, logs := s.gpus(m, 1, config.Pool{Name: "pairs", Devices: gpu.Selection{"1", "4", "2", "7"}, GPUsPerSlot: 2, Memory: 8 << 30})
	require.Equal(t, 1, logs.FilterMessage("device cordoned").Len())
	require.Contains(t, fmt.Sprint(logs.FilterMessage("device cordoned").All()[0].ContextMap()), "nvidia-fabricmanager")
	require.Equal(t, 9, logs.FilterMessage("device probed").Len())

	run := s.start(gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 2_000}, Ladder: []string{"gpu"}, Output: "out"})
	rig.Wait(t, s.made("middle"), time.Minute, time.Millisecond)
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

	t.Run("one that works again comes back", func(t *testing.T) {
		m.Update(func(state *gputest.State) { state.GPUs[0].Sick = gputest.Sick{} })
		rig.Wait(t, func() bool { return logs.FilterMessage("device works again").Len() == 1 }, time.Minute, 10*time.Millisecond)
	})
	// Its words blame the device, but it fails wherever it runs.
	t.Run("a fault that follows the item is the item's", func(t *testing.T) {
		sum, err := s.run(gpumux.MapInput{Task: "cursed", Range: &gpumux.Range{End: 100}, Ladder: []string{"gpu"}})
		require.NoError(t, err)
		require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultCrash: 1}, sum.Faults)
		results := s.results(sum)
		squares(t, results, 7)
		require.Contains(t, results[7].Fault.Message, "unknown error")
		require.Equal(t, 2, logs.FilterMessage("device cordoned").Len(), "the probes passed")
		failed := map[string]bool{}
		for _, entry := range logs.FilterMessage("a call failed").All() {
			if fields := entry.ContextMap(); strings.Contains(fmt.Sprint(fields["fault"]), "unknown error") {
				failed[fields["device"].(string)] = true
			}
		}
		require.GreaterOrEqual(t, len(failed), 2, "it was tried on another device: %v", failed)
	})
	// Its process and its children see both devices, and what they hold there counts.
	t.Run("a slot of two GPUs", func(t *testing.T) {
		run := s.start(gpumux.MapInput{Task: "pair", Range: &gpumux.Range{End: 4}, Ladder: []string{"pairs"}})
		rig.Wait(t, func() bool {
			return slices.ContainsFunc(w.Describe().Pools[1].Seats, func(seat contract.SlotInfo) bool { return seat.Held > 2*528<<20 })
		}, time.Minute, 10*time.Millisecond, "the watch sees two contexts and what is held beside them")
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, "seen"), nil, 0o600))
		var sum gpumux.Summary
		require.NoError(t, run.Get(t.Context(), &sum))
		for _, r := range s.results(sum) {
			require.Nil(t, r.Fault)
			var got []any
			require.NoError(t, json.Unmarshal(r.Value, &got))
			require.Contains(t, []string{device(1) + "," + device(4), device(2) + "," + device(7)}, got[1])
			require.EqualValues(t, 2, got[2])
		}
		require.Greater(t, sum.Peak.Max(), gpumux.Size(2*528<<20))
	})
}

// made reports whether a task has made a file.
func (s *site) made(name string) func() bool {
	return func() bool {
		_, err := os.Stat(filepath.Join(s.dir, name))
		return err == nil
	}
}

// The only GPU falls sick and comes back; the CPU has its work meanwhile, and holds it
// until then.
func TestDevices_AllSick(t *testing.T) {
	if !ownProcess(t) {
		return
	}
	m := machine(t, gputest.GPU{})
	s := newSite(t)
	_, logs := s.gpus(m, 1, config.Pool{Name: "cpu", Devices: gpu.Selection{"cpu"}})
	run := s.start(gpumux.MapInput{Task: "either", Range: &gpumux.Range{End: 2000}, Ladder: []string{"gpu", "cpu"}, Patience: patience, Output: "out.jsonl"})
	rig.Wait(t, s.made("middle"), time.Minute, time.Millisecond)
	m.Update(func(state *gputest.State) { state.GPUs[0].Sick.Init = 802 })
	rig.Wait(t, s.made("on the CPU"), time.Minute, time.Millisecond)
	waits := s.start(gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 4}, Ladder: []string{"gpu"}})
	rig.Wait(t, func() bool {
		d, err := s.starter().Show(t.Context(), waits.GetID())
		return err == nil && len(d.Sick) == 1 && strings.Contains(d.Sick[0], "gets no work: ") &&
			len(d.Notices) > 0 && strings.Contains(d.Notices[0], "device cordoned")
	}, time.Minute, 100*time.Millisecond, "show says so")
	m.Update(func(state *gputest.State) { state.GPUs[0].Sick.Init = 0 })
	rig.Wait(t, func() bool { return logs.FilterMessage("device works again").Len() == 1 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "works again"), nil, 0o600))
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.Equal(t, []string{"gpu"}, sum.PassedOver)
	by := squares(t, s.results(sum))
	require.Positive(t, by[""], "%v", by)
	require.True(t, s.made("back")(), "%v", by)
	require.Equal(t, 1, logs.FilterMessage("device cordoned").Len())
	require.NoError(t, waits.Get(t.Context(), nil))
}

func TestDevices_DoctorTriesThem(t *testing.T) {
	t.Parallel()
	m := gputest.Prepare(t, gputest.State{GPUs: []gputest.GPU{{}, {Sick: gputest.Sick{Init: 802}}}})
	path := programtest.Binary(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "gpumux.yaml")
	require.NoError(t, os.WriteFile(file, []byte("store: file://"+dir+"\npools: [{name: gpu, devices: all}]\ntasks: {t: {command: [cat]}}\n"), 0o644))
	for name, arguments := range map[string][]string{"doctor": {"doctor"}, "worker --check": {"worker", "-f", file, "--check"}} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(path, arguments...)
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+m.Folder, "XDG_STATE_HOME="+dir)
			output, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Regexp(t, `(?m)^ok +device 0 .*16GiB free of 16GiB; works; a context takes 528MiB and \d+\.\d\d s$`, string(output))
			require.Regexp(t, `(?m)^FAILED +device 1 .*; cuInit failed: system not yet initialized \(CUDA error 802\)\n +-> .*nvidia-fabricmanager`, string(output))
		})
	}
}

// A map is told what its GPUs did: the shares of its calls add up to their time, however
// many slots there are.
func TestDevices_WhatGPUsDid(t *testing.T) {
	if !ownProcess(t) {
		return
	}
	m := machine(t, gputest.GPU{Utilization: 30, Milliwatts: 250_000, Throttle: 0x20}, gputest.GPU{Utilization: 30, Milliwatts: 250_000})
	s := newSite(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "naps.py"), []byte("import time\ndef nap(x):\n    time.sleep(0.1)\n    return x\n"), 0o644))
	c := s.config("gpu", 1)
	c.Pools[0].Devices, c.Pools[0].Slots, c.Pools[0].Price = gpu.Selection{"all"}, 2, 3600
	c.Tasks["nap"] = config.Task{Python: "naps.py:nap"}
	w, _ := s.imitated(m, c)
	began := time.Now()
	run := s.start(gpumux.MapInput{Task: "nap", Range: &gpumux.Range{End: 240}, Chunk: 60, Ladder: []string{"gpu"}})
	rig.Wait(t, func() bool { return len(w.Describe().Pools[0].Computing) == 2 }, time.Minute, time.Millisecond)
	require.Equal(t, []int{30}, w.Describe().Pools[0].Computing[device(0)])
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	took := time.Since(began)
	require.NotNil(t, sum.GPU)
	seconds := time.Duration(sum.GPU.Time).Seconds()
	require.Greater(t, seconds, 240*0.1/4*2*0.7, "but for its first reading of each GPU")
	require.Less(t, seconds, 2*took.Seconds())
	require.InDelta(t, 0.3, float64(sum.GPU.Computing)/float64(sum.GPU.Time), 0.01)
	require.InDelta(t, 250, sum.GPU.Energy/seconds, 5)
	require.InDelta(t, 0.5, float64(sum.GPU.Slowed)/float64(sum.GPU.Time), 0.2, "one of the two")
	require.InDelta(t, seconds, sum.GPU.Cost, 0.01)
	require.EqualValues(t, 240, sum.GPU.Items)
	require.InDelta(t, float64(sum.GPU.Slots), float64(sum.GPU.Busy), 0.3*float64(sum.GPU.Slots), "naps fill the slots")
	require.Contains(t, sum.GPU.String(), "its items leave it idle: try more slots per GPU")

	sum, err := s.run(gpumux.MapInput{Stages: []gpumux.Stage{{Task: "nap", Ladder: []string{"gpu"}}, {Task: "nap", Ladder: []string{"gpu"}}}, Range: &gpumux.Range{End: 20}})
	require.NoError(t, err)
	all := sum.Stages[0].GPU.Time + sum.Stages[1].GPU.Time
	require.InDelta(t, float64(sum.GPU.Time), float64(all), 10)
}
