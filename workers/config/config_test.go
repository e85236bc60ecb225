package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
)

// twoGPUs is a host with two GPUs of 80 GiB and 64 GiB of its own.
func twoGPUs(t testing.TB) *gpu.Inventory {
	return static(t,
		gpu.Device{Index: 0, Kind: gpu.KindGPU, UUID: "GPU-aaaa", Name: "H100", Memory: 80 << 30},
		gpu.Device{Index: 1, Kind: gpu.KindGPU, UUID: "GPU-bbbb", Name: "H100", Memory: 80 << 30},
		gpu.Device{Index: -1, Kind: gpu.KindCPU, UUID: gpu.CPU, Name: "host", Memory: 64 << 30},
	)
}

func onlyCPU(t testing.TB) *gpu.Inventory {
	return static(t, gpu.Device{Index: -1, Kind: gpu.KindCPU, UUID: gpu.CPU, Name: "host", Memory: 64 << 30})
}

func static(t testing.TB, devices ...gpu.Device) *gpu.Inventory {
	inv, err := gpu.Open(t.Context(), gpu.Options{Static: devices})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inv.Close()) })
	return inv
}

// site is a folder with what the files of the tests refer to.
func site(t testing.TB) string {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	write := func(name, content string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
	}
	write("embed.py", "from os import system\n\ndef embed(item):\n    return item\n\nasync def other(item):\n    return item\n\ndef _hidden(item):\n    pass\n", 0o644)
	write("tasks/sweep.py", "import os\nfrom os import system\n\ndef fit(item):\n    def inner(): pass\n    return item\n\nclass Model:\n    def train(self): pass\n", 0o644)
	write("tasks/score.py", "def score(item): return item\n", 0o644)
	write("tasks/not-a-module.py", "def f(item): return item\n", 0o644)
	write("tasks/deeper/secret.py", "def open(item): return item\n", 0o644)
	write("outside.py", "def outside(item): return item\n", 0o644)
	write("fit.R", "fit.model <- function(item) item\n", 0o644)
	write("train", "#!/bin/sh\ncat\n", 0o755)
	write("plain.txt", "no program\n", 0o644)
	write("venv/bin/python", "#!/bin/sh\nexec python3 \"$@\"\n", 0o755)
	return dir
}

func TestConfig_Validate(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"an empty file": {"", `2 mistakes in FILE
  pools: none given; name at least one, such as {name: gpu, devices: all, slots: 1}
  tasks: none given; name at least one, such as embed: {python: "embed.py:embed"}`},
		"pools": {`
metrics: "9464"
store: /var/lib/gpumux
pools:
  - {name: GPU}
  - {name: a, devices: [7]}
  - {name: a, devices: [GPU-aaaa], mode: fast}
  - {devices: cpu, sharing: wild, gpus_per_slot: 2}
  - {name: d, devices: [0, 1], gpus_per_slot: -1}
tasks:
  embed: {python: "embed.py:embed"}
contact: 1s
`, `11 mistakes in FILE
  FILE:2: metrics: "9464" is not host:port; write 127.0.0.1:9464
  FILE:3: store: "/var/lib/gpumux" is not a URL; write it as file:///var/lib/gpumux or s3://bucket?region=eu-central-1
  FILE:5: pools[0].name: pool name "GPU": use 1 to 63 lower-case letters, digits and dashes, such as gpu or h200-16g
  FILE:6: pools[1].devices: unknown device "7": this host has 0 (GPU-aaaa, H100), 1 (GPU-bbbb, H100), cpu (host)
  FILE:7: pools[2].name: "a" is the name of an earlier pool too; give each pool its own
  FILE:7: pools[2].mode: "fast" is unknown; use persistent or fresh
  FILE:8: pools[3].name: is missing; name the pool, such as gpu
  FILE:8: pools[3].gpus_per_slot: 2, but cpu (host) is not a whole GPU; only whole GPUs can be joined
  FILE:8: pools[3].sharing: "wild" is unknown; use default, mig, mps
  FILE:9: pools[4].gpus_per_slot: -1 is below 1
  FILE:12: contact: 1s is outside 2s to 1h0m0s`},
		"slots: auto": {`
pools:
  - {name: a, devices: [0], slots: auto, memory: 90GiB}
  - {name: c, devices: cpu, slots: auto}
  - {name: d, devices: cpu, slots: auto}
tasks:
  embed: {python: "embed.py:embed"}
`, `2 mistakes in FILE
  FILE:3: pools[0].memory: 1 × 90GiB in pool a is more than the 80GiB of 0 (GPU-aaaa, H100); lower memory or slots
  FILE:5: pools[2].slots: auto, but pool c has that on cpu (host) too; give one of them a number`},
		"shares of devices": {`
pools:
  - {name: a, devices: [0], slots: 4, memory: 16GiB}
  - {name: b, devices: [0], slots: 2, memory: 16GiB}
  - {name: c, devices: cpu, slots: 2, memory: 40GiB}
tasks:
  embed: {python: "embed.py:embed"}
`, `2 mistakes in FILE
  FILE:4: pools[1].memory: 4 × 16GiB in pool a + 2 × 16GiB in pool b is more than the 80GiB of 0 (GPU-aaaa, H100); lower memory or slots
  FILE:5: pools[2].memory: 2 × 40GiB in pool c is more than the 64GiB of cpu (host); lower memory or slots`},
		"groups that do not divide": {`
pools: [{name: a, gpus_per_slot: 3}]
tasks:
  embed: {python: "embed.py:embed"}
`, `1 mistake in FILE
  FILE:2: pools[0].gpus_per_slot: 2 GPUs do not divide into groups of 3; name a multiple of 3 in devices`},
		"tasks in R": {`
pools: [{name: cpu, devices: cpu}]
tasks:
  shapeless: {r: fit.R, interpreter: ./train}
  gone: {r: "gone.R:f", interpreter: ./train}
  typo: {r: "fit.R:fit.modle", interpreter: ./train}
  venv: {r: "fit.R:fit.model", venv: venv, fresh: fork, explain_oom: true}
`, `6 mistakes in FILE
  FILE:4: tasks.shapeless.r: "fit.R" does not say which function; write it as file.R:function
  FILE:5: tasks.gone.r: DIR/gone.R: does not exist
  FILE:6: tasks.typo.r: DIR/fit.R has no function fit.modle
  FILE:7: tasks.venv.venv: is for Python; give the Rscript as interpreter, and packages by R_LIBS in env
  FILE:7: tasks.venv.fresh: is for python and python_dir only; what else runs once per item starts anew each time
  FILE:7: tasks.venv.explain_oom: is for python and python_dir only`},
		"tasks": {`
pools: [{name: cpu, devices: cpu}]
tasks:
  nothing: {mode: fresh}
  two: {python: "embed.py:embed", command: [./train]}
  gone: {python: "gone.py:f"}
  typo: {python: "embed.py:embd"}
  far: {python: "embed.py:transmogrify"}
  shapeless: {python: embed}
  badmodule: {python: "a b:c"}
  venv: {python: "embed.py:embed", venv: ./plain}
  both: {python: "embed.py:embed", venv: venv, interpreter: python3}
  nopython: {python: "embed.py:embed", interpreter: ./plain.txt}
  folder: {python_dir: tasks}
  "star/*": {python: "embed.py:embed"}
  "odd*": {python_dir: tasks}
  "gone/*": {python_dir: nowhere}
  "file/*": {python_dir: plain.txt}
  notfound: {command: [no-such-program-here]}
  notexec: {command: [./plain.txt], mode: persistent, recycle: 1, venv: venv}
  out: {python: "embed.py:embed", output: text, fresh: thread}
  out2: {command: [./train], output: xml, fresh: fork, start: 1h}
  negative: {python: "embed.py:embed", timeout: -1s, start: -1s, recycle: -1, dir: nowhere}
  env: {python: "embed.py:embed", env: {CUDA_VISIBLE_DEVICES: "0", "A B": x}, pass_env: [XLA_PYTHON_CLIENT_MEM_FRACTION]}
`, `33 mistakes in FILE
  FILE:4: tasks.nothing: says not what to run; give one of python, python_dir, r, command and program
  FILE:5: tasks.two: has command and python; give only one
  FILE:6: tasks.gone.python: DIR/gone.py: does not exist
  FILE:7: tasks.typo.python: DIR/embed.py has no function embd; it has embed, other
  FILE:8: tasks.far.python: DIR/embed.py has no function transmogrify; it has embed, other
  FILE:9: tasks.shapeless.python: "embed" does not say which function; write it as file.py:function or module:function
  FILE:10: tasks.badmodule.python: "a b" is no module name; write it as file.py:function or module:function
  FILE:11: tasks.venv.venv: DIR/plain is no Python environment (DIR/plain/bin/python is missing); create it with: python3 -m venv DIR/plain
  FILE:12: tasks.both: has venv and interpreter; give only one
  FILE:13: tasks.nopython.interpreter: DIR/plain.txt is not executable; make it so with: chmod +x DIR/plain.txt
  FILE:14: tasks.folder: python_dir makes many tasks; write the name as "folder/*"
  FILE:15: tasks["star/*"]: a name with * stands for a folder of modules; give python_dir, or a name without *
  FILE:16: tasks["odd*"]: python_dir makes many tasks; write the name as "odd/*"
  FILE:17: tasks["gone/*"].python_dir: DIR/nowhere: does not exist
  FILE:18: tasks["file/*"].python_dir: DIR/plain.txt is not a folder
  FILE:19: tasks.notfound.command: "no-such-program-here" is not on PATH; give its path, such as ./no-such-program-here
  FILE:20: tasks.notexec: venv and interpreter are for python, python_dir and r; a command or program starts by itself
  FILE:20: tasks.notexec.command: DIR/plain.txt is not executable; make it so with: chmod +x DIR/plain.txt
  FILE:20: tasks.notexec.mode: a command runs once per item, so it is always fresh; leave mode out, or give a program that stays
  FILE:20: tasks.notexec.recycle: a command runs once per item; leave it out
  FILE:21: tasks.out.fresh: "thread" is unknown; use fork or spawn
  FILE:21: tasks.out.output: is for commands only; a function returns its result
  FILE:22: tasks.out2.output: "xml" is unknown; use json or text
  FILE:22: tasks.out2.start: a command has no start of its own; give timeout, which counts all of it
  FILE:22: tasks.out2.fresh: is for python and python_dir only; what else runs once per item starts anew each time
  FILE:23: tasks.negative.dir: DIR/nowhere: does not exist
  FILE:23: tasks.negative.python: DIR/nowhere/embed.py: does not exist
  FILE:23: tasks.negative.start: is negative; leave it out for the default
  FILE:23: tasks.negative.timeout: is negative; leave it out for no limit
  FILE:23: tasks.negative.recycle: is negative; leave it out for no limit
  FILE:24: tasks.env.env["A B"]: "A B" is no name of a variable
  FILE:24: tasks.env.env.CUDA_VISIBLE_DEVICES: CUDA_VISIBLE_DEVICES is set by the slot; leave it out, and choose devices and sharing in the pool
  FILE:24: tasks.env.pass_env[0]: XLA refuses XLA_PYTHON_CLIENT_MEM_FRACTION beside XLA_CLIENT_MEM_FRACTION, which the slot sets; use that name`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := site(t)
			c, err := load(t, dir, test.text)
			require.NoError(t, err)
			err = c.Validate(twoGPUs(t))
			require.Error(t, err)
			got := strings.ReplaceAll(err.Error(), filepath.Join(dir, "gpumux.yaml"), "FILE")
			require.Equal(t, test.want, strings.ReplaceAll(got, dir, "DIR"))
		})
	}
}

func TestConfig_AutoSlotsReachAsFarAsTheirBudgets(t *testing.T) {
	c, err := load(t, site(t), `
pools:
  - {name: some, slots: auto, memory: 8GiB}
  - {name: fixed, slots: 2, memory: 10GiB}
  - {name: cpu, devices: cpu, slots: auto}
tasks:
  a: {python: "embed.py:embed"}
`)
	require.NoError(t, err)
	placements, _, err := c.Plan(twoGPUs(t))
	require.NoError(t, err)
	require.Equal(t, []int{7, 2, runtime.GOMAXPROCS(0)}, []int{placements[0].MaxSlots, placements[1].MaxSlots, placements[2].MaxSlots})
	require.Equal(t, []int{1, 2, 1}, []int{placements[0].MinSlots(), placements[1].MinSlots(), placements[2].MinSlots()})

	// The bound is of the slots, not of what a call gets that has the device whole.
	c.Pools[0].Memory, c.Pools[1] = 4<<30, Pool{Name: "fixed"}
	placements, _, err = c.Plan(twoGPUs(t))
	require.NoError(t, err)
	require.Equal(t, []int{16, 20}, []int{placements[0].MaxSlots, placements[0].Fit})

	// Two GPUs make one slot, each with half of its budget.
	c.Pools = []Pool{{Name: "pair", Slots: AutoSlots, GPUsPerSlot: 2, Memory: 40 << 30}}
	placements, _, err = c.Plan(twoGPUs(t))
	require.NoError(t, err)
	require.Equal(t, 4, placements[0].MaxSlots)
}

func TestConfig_NoGPU(t *testing.T) {
	c, err := load(t, site(t), "pools: [{name: gpu}]\ntasks:\n  a: {python: \"embed.py:embed\"}\n")
	require.NoError(t, err)
	err = c.Validate(onlyCPU(t))
	require.ErrorContains(t, err, "gpumux.yaml:1: pools[0].devices: there is no GPU on this host")
	require.ErrorContains(t, err, "devices: cpu")
}

func TestConfig_DefaultStore(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/data/home")
	url, err := Config{}.StoreURL()
	require.NoError(t, err)
	require.Equal(t, "file:///data/home/gpumux/store", url)
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("HOME", "/home/ada")
	url, err = Config{}.StoreURL()
	require.NoError(t, err)
	require.Equal(t, "file:///home/ada/.local/share/gpumux/store", url)
}

func TestMetricsAddress(t *testing.T) {
	for text, want := range map[string]string{":9464": "127.0.0.1:9464", "0.0.0.0:1": "0.0.0.0:1", "[::1]:9464": "[::1]:9464"} {
		got, err := MetricsAddress(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"9464", "localhost", "a:b", "127.0.0.1:70000"} {
		_, err := MetricsAddress(text)
		require.ErrorContains(t, err, "write 127.0.0.1:9464", text)
	}
}

// Other hosts get the configuration of a map's workers as JSON.
func TestConfig_WrittenAsJSONIsReadAsItWas(t *testing.T) {
	dir := t.TempDir()
	want := Config{
		Temporal: Temporal{Connect: filepath.Join(dir, "temporal.toml")},
		Pools: []Pool{
			{Name: "cpu", Devices: gpu.Selection{"cpu"}, Slots: CoreSlots},
			{Name: "gpu", Devices: gpu.Selection{"0", "1"}, Slots: AutoSlots, Memory: 1<<30 + 1, Reserve: 3, Mode: gpumux.ModeFresh, Sharing: "mps", GPUsPerSlot: 2},
			{Name: "big", Devices: gpu.Selection{"all"}, Slots: 7},
		},
		Tasks: map[string]Task{
			"embed": {Python: "in here/embed.py:embed", Interpreter: "/venv/bin/python", Dir: "/tasks", PassEnv: []string{"A"}, Fresh: "spawn",
				Start: gpumux.Duration(90*time.Second + time.Millisecond)},
			"fit":  {R: "fit.R:fit", Dir: "/tasks"},
			"size": {Command: []string{"./x", "{}", "1.10"}, Output: "text", Dir: "/tasks"},
		},
	}
	text, err := json.MarshalIndent(want, "", "  ")
	require.NoError(t, err)
	file := filepath.Join(dir, "worker.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	got, err := Load(file)
	require.NoError(t, err)
	got.Dir, got.file, got.lines = "", "", nil
	require.Equal(t, want, got)
}
