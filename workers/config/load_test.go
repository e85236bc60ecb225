package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// load writes a file into the site and reads it as the command does.
func load(t testing.TB, dir, text string) (Config, error) {
	path := filepath.Join(dir, "gpumux.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return Load(path)
}

const complete = `
temporal: {address: "10.0.0.1:7233", namespace: prod}
store: s3://bucket/gpumux?region=eu-west-1
pools:
  - name: gpu
    devices: all
    slots: 4
    memory: 8GiB
    mode: persistent
    sharing: default
    gpus_per_slot: 1
  - {name: pair, devices: [0, GPU-bbbb], gpus_per_slot: 2, memory: 32GiB}
  - {name: cpu, devices: cpu, slots: 2, memory: 1.5G, mode: fresh}
tasks:
  embed: {python: "embed.py:embed", venv: venv, mode: persistent, fresh: spawn, start: 30m, recycle: 1000}
  train: {command: ["./train", "--json"], timeout: 2h, env: {A: "1"}, pass_env: [HF_HOME], output: text}
  serve: {program: [./train], dir: .}
  curve: {r: "fit.R:fit.model", interpreter: ./train}
  "sweep/*": {python_dir: ./tasks, interpreter: python3}
`

func TestLoad_Complete(t *testing.T) {
	dir := site(t)
	c, err := load(t, dir, complete)
	require.NoError(t, err)
	require.NoError(t, c.Validate(twoGPUs(t)))

	require.Equal(t, Temporal{Address: "10.0.0.1:7233", Namespace: "prod"}, c.Temporal)
	placements, tasks, err := c.Plan(twoGPUs(t))
	require.NoError(t, err)
	require.Len(t, placements, 3)
	require.Equal(t, []string{"GPU-aaaa", "GPU-bbbb"}, []string{placements[0].Groups[0].Name, placements[0].Groups[1].Name})
	require.Equal(t, gpumux.Size(8<<30), placements[0].Memory)
	require.Len(t, placements[1].Groups, 1)
	require.Equal(t, "GPU-aaaa,GPU-bbbb", placements[1].Groups[0].Name)
	require.Equal(t, gpumux.Size(3<<29), placements[2].Memory)
	require.Equal(t, gpumux.ModeFresh, placements[2].Mode)

	embed, err := tasks.Find("embed")
	require.NoError(t, err)
	require.Equal(t, "embed.py:embed", embed.Python)
	require.Equal(t, filepath.Join(dir, "venv/bin/python"), embed.Interpreter)
	require.Equal(t, dir, embed.Dir)
	require.Equal(t, 1000, embed.Recycle)
	require.EqualValues(t, "spawn", embed.Fresh)
	require.Equal(t, 30*time.Minute, embed.StartLimit)

	curve, err := tasks.Find("curve")
	require.NoError(t, err)
	require.Equal(t, []string{"fit.R:fit.model", filepath.Join(dir, "train")}, []string{curve.R, curve.Interpreter})
	require.Equal(t, "python", filepath.Base(tasks.Interpreter()), "no Rscript")

	train, err := tasks.Find("train")
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "train"), "--json"}, train.Command)
	require.True(t, train.Text)
	require.Equal(t, 2*time.Hour, train.Timeout)
	require.Equal(t, map[string]string{"A": "1"}, train.Env)
	require.Equal(t, []string{"HF_HOME"}, train.PassEnv)

	fit, err := tasks.Find("sweep/sweep:fit")
	require.NoError(t, err)
	require.Equal(t, "sweep.py:fit", fit.Python)
	require.Equal(t, filepath.Join(dir, "tasks"), fit.Dir)
	require.True(t, filepath.IsAbs(fit.Interpreter), fit.Interpreter)
}

func TestLoad_ABacklogIsAMetric(t *testing.T) {
	c, err := load(t, site(t), "backlog: [GPU]\npools: [{name: cpu, devices: cpu}]\ntasks: {t: {command: [true]}}")
	require.NoError(t, err)
	err = c.Validate(onlyCPU(t))
	require.ErrorContains(t, err, "backlog: is a metric; give metrics too")
	require.ErrorContains(t, err, "backlog[0]: ")
	c.Backlog, c.Metrics = []string{"gpu"}, ":9464"
	require.NoError(t, c.Validate(onlyCPU(t)))
}

func TestLoad_AnchorsAndMergeKeys(t *testing.T) {
	dir := site(t)
	c, err := load(t, dir, `
pools: [{name: cpu, devices: cpu}]
tasks:
  a: &base {python: "embed.py:embed", timeout: 5m, env: {A: "1"}}
  b: {<<: *base, timeout: 9m}
  c: *base
  d: {timeout: 9m, <<: [{env: {VERSION: 1.10, PORT: 007, ON: yes, NONE: ~}}, *base]}
`)
	require.NoError(t, err)
	require.NoError(t, c.Validate(onlyCPU(t)))
	require.Equal(t, gpumux.Duration(9*time.Minute), c.Tasks["b"].Timeout)
	require.Equal(t, "embed.py:embed", c.Tasks["b"].Python)
	require.Equal(t, c.Tasks["a"], c.Tasks["c"])
	require.Equal(t, map[string]string{"VERSION": "1.10", "PORT": "007", "ON": "yes", "NONE": ""}, c.Tasks["d"].Env, "values stay as they are written")
	require.Equal(t, gpumux.Duration(9*time.Minute), c.Tasks["d"].Timeout)
}

// Every mistake is named with its line, the value, and what to do.
func TestLoad_Mistakes(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"unknown fields, all at once": {`
pools:
  - name: gpu
    memroy: 8GiB
    zzz: 1
task: {}
`, `3 mistakes in FILE
  FILE:4: pools[0].memroy: is no field; there are …
  FILE:5: pools[0].zzz: is no field; there are …
  FILE:6: task: is no field; there are …`},
		"wrong shapes": {`
temporal: here
store: [a]
pools:
  - {name: [x], slots: many, memory: 8 apples, gpus_per_slot: two}
  - {name: b, slots: 0, devices: {a: 1}}
  - gpu
tasks:
  a: {command: ./train, timeout: soon, recycle: many, env: [A]}
`, `13 mistakes in FILE
  FILE:2: temporal: is a string; an object belongs here
  FILE:3: store: is a list; a string belongs here
  FILE:5: pools[0].gpus_per_slot: "two" is a string; a whole number belongs here
  FILE:5: pools[0].memory: "8 apples" is not a size; write it as 8GiB, 512MB or a number of bytes
  FILE:5: pools[0].name: is a list; a string belongs here
  FILE:5: pools[0].slots: "many" is not a number of slots; give 1 to 256, auto or cores
  FILE:6: pools[1].devices: {"a":"1"} is neither a number nor a name; give all, cpu, indices such as [0, 1] or UUIDs
  FILE:6: pools[1].slots: "0" is not a number of slots; give 1 to 256, auto or cores
  FILE:7: pools[2]: is a string; an object belongs here
  FILE:9: tasks.a.command: is a string; a list belongs here
  FILE:9: tasks.a.env: is a list; an object belongs here
  FILE:9: tasks.a.recycle: "many" is a string; a whole number belongs here
  FILE:9: tasks.a.timeout: "soon" is not a duration; write it as 30s, 5m or 2h`},
		"not YAML": {"pools: [\n", `1 mistake in FILE
  FILE:1: did not find expected node content`},
		"a key twice": {"store: a\nstore: b\n", `1 mistake in FILE
  FILE:2: mapping key "store" already defined at line 1`},
		"two documents": {"store: a\n---\nstore: b\n", `1 mistake in FILE
  FILE:3: a second YAML document; give one`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := site(t)
			_, err := load(t, dir, test.text)
			require.Error(t, err)
			got := strings.ReplaceAll(err.Error(), filepath.Join(dir, "gpumux.yaml"), "FILE")
			require.Equal(t, test.want, regexp.MustCompile(`there are .*, .*`).ReplaceAllString(got, "there are …"))
		})
	}
}

func TestLoad_NoFile(t *testing.T) {
	_, err := Load("/nowhere/gpumux.yaml")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "give the worker's file with -f")
}
