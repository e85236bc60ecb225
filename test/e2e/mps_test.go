package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workers/config"
)

// kernelsPy squares on the device, and runs kernels that ruin it or never end.
const kernelsPy = cudaPy + `
def kernel(name):
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), b"")
    call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    call("cuCtxSynchronize")
def faulty(x):
    got = square(x)
    with open("ran", "a") as log: log.write(f"{x} {os.getpid()}\n")
    time.sleep(0.005)
    if x == 20: kernel("illegal")
    return got
def endless(x):
    got = square(x)
    if x == 3:
        open("spins", "a").close()
        kernel("spin")
    return got
def limits(x):
    square(x)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return [free.value, total.value, {k: v for k, v in os.environ.items() if k.startswith("CUDA_MPS_")}]
`

// mpsMachine is a machine whose driver has MPS; the folder is where workers make those of
// their daemons.
func mpsMachine(t *testing.T, gpus ...gputest.GPU) (m *gputest.Machine, folder string) {
	m = machine(t, gpus...)
	t.Setenv("PATH", m.Folder+":"+os.Getenv("PATH"))
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", "")
	folder, err := os.MkdirTemp("", "m") // paths of sockets are short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	t.Setenv("TMPDIR", folder)
	return m, folder
}

// onMPS gives a shell a machine whose driver has MPS.
func (s *shell) onMPS() (folder string) {
	m := gputest.Prepare(s.t, gputest.State{GPUs: []gputest.GPU{{}}})
	folder, err := os.MkdirTemp("", "m")
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, os.RemoveAll(folder)) })
	s.write("kernels.py", kernelsPy)
	s.env = append(s.env, "LD_LIBRARY_PATH="+m.Folder, "PATH="+m.Folder+":"+os.Getenv("PATH"), "TMPDIR="+folder, "CUDA_MPS_PIPE_DIRECTORY=")
	return folder
}

// daemons are the MPS daemons and servers whose pipe directory lies in a folder.
func daemons(folder string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if strings.Contains(string(text), "CUDA_MPS_PIPE_DIRECTORY="+folder) && strings.Contains(string(line), gputest.MPSControl) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// What goes wrong under MPS, one after the other on one worker of two GPUs: each time all
// processes of the device are replaced, and nobody's item pays but the one to blame.
func TestMPS_FaultsOfOneAreTheItems(t *testing.T) {
	if !ownProcess(t) {
		return
	}
	m, folder := mpsMachine(t, gputest.GPU{}, gputest.GPU{Mode: 3})
	s := newSite(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "kernels.py"), []byte(kernelsPy), 0o644))
	c := s.config("gpu", 1)
	c.Pools = []config.Pool{{Name: "gpu", Sharing: "mps", Slots: 4, Memory: 2 << 30}}
	for _, name := range []string{"square", "faulty", "endless", "limits"} {
		c.Tasks[name] = config.Task{Python: "kernels.py:" + name}
	}
	w, logs := s.imitated(m, c)

	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		sum, err := s.run(gpumux.MapInput{Task: "limits", Range: &gpumux.Range{End: 8}, Ladder: []string{"gpu"}, Mode: mode, Output: string(mode)})
		require.NoError(t, err)
		for _, r := range s.results(sum) {
			require.Nil(t, r.Fault, "%v", r.Fault)
			var got []json.RawMessage
			require.NoError(t, json.Unmarshal(r.Value, &got))
			require.JSONEq(t, fmt.Sprint(2<<30-528<<20), string(got[0]), "less the context")
			require.JSONEq(t, fmt.Sprint(16<<30), string(got[1]))
			require.Contains(t, string(got[2]), `"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE":"50"`)
		}
	}

	// A fault reaches all clients of the server.
	sum, err := s.run(gpumux.MapInput{Task: "faulty", Range: &gpumux.Range{End: 400}, Ladder: []string{"gpu"}, Output: "out"})
	require.NoError(t, err)
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultCrash: 1}, sum.Faults)
	results := s.results(sum)
	squares(t, results, 20)
	require.Contains(t, results[20].Fault.Message, "illegal memory access")
	require.LessOrEqual(t, results[20].Fault.Attempts, 3)
	require.Positive(t, logs.FilterMessage("the MPS server has failed; all slots on the device get new processes").Len())
	require.True(t, slices.ContainsFunc(logs.FilterMessage("a call failed").All(), func(entry observer.LoggedEntry) bool {
		return strings.Contains(fmt.Sprint(entry.ContextMap()["fault"]), "illegal memory access")
	}))

	// A process that is killed in the middle of a kernel may spoil the server.
	sum, err = s.run(gpumux.MapInput{Task: "endless", Range: &gpumux.Range{End: 30}, Ladder: []string{"gpu"}, Output: "spun", Timeout: gpumux.Duration(time.Second)})
	require.NoError(t, err)
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultTimeout: 1}, sum.Faults)
	squares(t, s.results(sum), 3)
	require.FileExists(t, filepath.Join(s.dir, "spins"))

	// A daemon that dies takes its clients along, and another takes its place.
	served := logs.FilterMessage("an MPS daemon serves the device").Len()
	for _, pid := range daemons(folder) {
		n, err := strconv.Atoi(pid)
		require.NoError(t, err)
		_ = syscall.Kill(n, syscall.SIGKILL) // one may have ended with another
	}
	sum, err = s.run(gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 100}, Ladder: []string{"gpu"}, Output: "squares"})
	require.NoError(t, err)
	require.EqualValues(t, 100, sum.Succeeded, "%v", sum.Faults)
	require.Greater(t, logs.FilterMessage("an MPS daemon serves the device").Len(), served)
	require.Zero(t, logs.FilterMessage("device cordoned").Len(), "%v", logs.All())

	require.NotEmpty(t, daemons(folder))
	require.NoError(t, w.Stop(t.Context()))
	require.Empty(t, daemons(folder))
	left, err := filepath.Glob(filepath.Join(folder, "gpumux-mps-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A worker that is killed leaves neither a daemon nor its folder, although a client is in
// the middle of a kernel.
func TestMPS_NothingOutlivesAKilledWorker(t *testing.T) {
	t.Parallel()
	h := newShell(t)
	folder := h.onMPS()
	h.at(newSite(t))
	h.write("worker.yaml", fmt.Sprintf("store: file://%s\npools: [{name: gpu, sharing: mps, slots: 2, memory: 2GiB}]\n"+
		"tasks: {endless: {python: \"kernels.py:endless\"}}\n", h.path("store")))
	w := h.begin("worker", "-f", "worker.yaml")
	h.begin("map", "endless", "--range", "0:20", "--pool", "gpu", "--out", "r.jsonl", "--store", "file://"+h.path("store"))
	rig.Wait(t, func() bool {
		_, err := os.Stat(h.path("spins"))
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	require.GreaterOrEqual(t, len(daemons(folder)), 2, "a daemon and its server")
	made := func() []string {
		found, err := filepath.Glob(filepath.Join(folder, "gpumux-mps-*"))
		require.NoError(t, err)
		return found
	}
	require.Len(t, made(), 1)
	require.NoError(t, w.Process.Kill())
	require.Equal(t, -1, w.code())
	rig.Wait(t, func() bool { return len(daemons(folder)) == 0 && len(made()) == 0 }, time.Minute, 5*time.Millisecond)
}

// A map without a server of its own shares by MPS as a worker's file would let it.
func TestMPS_Local(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("kernels.py", kernelsPy)
	args := []string{"map", "kernels.py:limits", "--range", "0:8", "--local", "--slots", "2", "--out", "r.jsonl", "--sharing"}
	require.Contains(t, s.run(2, append(args, "mps")...).stderr.String(), "--sharing: mps, but cpu (")
	folder := s.onMPS()
	require.Contains(t, s.run(2, append(args, "wild")...).stderr.String(), `--sharing: "wild" is unknown; use default, mig, mps`)
	require.Contains(t, s.run(2, append(args, "mig")...).stderr.String(), "is no MIG instance; ")
	s.run(0, append(args, "mps", "--memory", "2GiB", "--pool", "gpu,cpu")...)
	for _, line := range s.lines(s.file("r.jsonl")) {
		require.Contains(t, string(line["value"]), `"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT":"0=2048M"`)
	}
	require.Empty(t, daemons(folder))
	s.run(2, "map", "kernels.py:limits", "--range", "0:8", "--sharing", "mps")
	s.run(2, "dev", "--sharing", "wild")
}
