package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func testCatalog(t *testing.T) (*Catalog, string) {
	dir := site(t)
	c, err := load(t, dir, complete)
	require.NoError(t, err)
	_, tasks, err := c.Plan(twoGPUs(t))
	require.NoError(t, err)
	return tasks, dir
}

func TestCatalog_Names(t *testing.T) {
	tasks, dir := testCatalog(t)
	require.Equal(t, []string{"curve", "embed", "serve", "sweep/score:score", "sweep/sweep:fit", "train"}, tasks.Names())
	// A module that is added later is there at once.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks", "later.py"), []byte("def now(item): pass\n"), 0o644))
	require.Contains(t, tasks.Names(), "sweep/later:now")
	_, err := tasks.Find("sweep/later:now")
	require.NoError(t, err)
}

func TestCatalog_OneNameHoweverAsked(t *testing.T) {
	tasks, _ := testCatalog(t)
	a, err := tasks.Find("sweep/sweep:fit")
	require.NoError(t, err)
	b, err := tasks.Find("sweep/sweep.py:fit")
	require.NoError(t, err)
	require.Equal(t, a, b)
	require.Equal(t, "sweep/sweep:fit", a.Name)
}

// A map's input reaches nothing that the operator did not name.
func TestCatalog_Refuses(t *testing.T) {
	tasks, dir := testCatalog(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks", "evil.py"), []byte("from os import system\nsystem2 = system\n"), 0o644))
	for _, name := range []string{
		"", "*", "sweep/*", "sweep/", "sweep/sweep", "sweep/sweep:", "sweep/:fit",
		"sweep/../outside:outside", "sweep/../outside.py:outside", "sweep/deeper/secret:open", "sweep/deeper.secret:open",
		"sweep//sweep:fit", "sweep/./sweep:fit", "sweep/" + dir + "/outside:outside",
		"sweep/sweep:os.system", "sweep/sweep:system", "sweep/sweep:os", "sweep/evil:system", "sweep/evil:system2",
		"sweep/sweep:inner", "sweep/sweep:train", "sweep/sweep:Model", "sweep/sweep:fit:fit", "sweep/sweep.py.py:fit",
		"sweep/sweep:fit\n", "sweep/sweep\x00:fit", "embed.py:embed", "embed.py:_hidden", "outside:outside",
		"/bin/sh", "./train", "train --json", "python3:-c",
	} {
		_, err := tasks.Find(name)
		var fault *gpumux.Fault
		require.True(t, errors.As(err, &fault), "%q", name)
		require.Equal(t, gpumux.BadInput, fault.Kind, "%q", name)
	}
}

// What stands in a text or a comment, or is replaced by an import, is no function of the
// module.
func TestCatalog_ReadsModulesAsPythonDoes(t *testing.T) {
	tasks, dir := testCatalog(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks", "doc.py"), []byte(`"""How to write one:

def system(item):
    ...
"""
from os import system
def popen(item): ...
from os import popen
def path(item): ...
import os.path as path
HELP = '''
def spawn(item):
'''
if True:
    from os import execv
async def good(item) -> None: ...
@staticmethod
def better (
    item): ...
`), 0o644))
	for _, name := range []string{"system", "popen", "path", "spawn", "execv"} {
		_, err := tasks.Find("sweep/doc:" + name)
		var fault *gpumux.Fault
		require.ErrorAs(t, err, &fault, name)
		require.Equal(t, gpumux.BadInput, fault.Kind, name)
	}
	require.Subset(t, tasks.Names(), []string{"sweep/doc:good", "sweep/doc:better"})
	task, err := tasks.Find("sweep/doc:good")
	require.NoError(t, err)
	require.True(t, task.Own)
}

// Tasks of the same user see the environments of all that the worker starts.
func TestCatalog_ReadsModulesWithoutCredentials(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	dir := site(t)
	seen := filepath.Join(dir, "seen")
	python := filepath.Join(dir, "python")
	require.NoError(t, os.WriteFile(python, []byte("#!/bin/sh\nenv >'"+seen+"'\nexec python3 \"$@\"\n"), 0o755))
	found, err := newModuleCache(python, filepath.Join(dir, "tasks")).read("sweep")
	require.NoError(t, err)
	require.Equal(t, []string{"fit"}, found["sweep"].Functions)
	text, err := os.ReadFile(seen)
	require.NoError(t, err)
	require.Contains(t, string(text), "PATH=")
	require.NotContains(t, string(text), "AWS_SECRET_ACCESS_KEY")
}

func TestCatalog_ModuleThatIsBroken(t *testing.T) {
	tasks, dir := testCatalog(t)
	file := filepath.Join(dir, "tasks", "half.py")
	require.NoError(t, os.WriteFile(file, []byte("def now(item):\n    return (\n"), 0o644))
	_, err := tasks.Find("sweep/half:now")
	require.ErrorContains(t, err, "half.py, line 2: SyntaxError: ")
	require.Contains(t, tasks.Names(), "sweep/sweep:fit", "the others are still there")
	require.NoError(t, os.WriteFile(file, []byte("def now(item):\n    return item\n"), 0o644))
	_, err = tasks.Find("sweep/half:now")
	require.NoError(t, err)
}

func TestCatalog_SaysWhatThereIs(t *testing.T) {
	tasks, _ := testCatalog(t)
	for name, want := range map[string]string{
		"embd":            `bad_input: no task "embd"; this worker has curve, embed, serve, sweep/score:score, sweep/sweep:fit, train; did you mean "embed"?`,
		"sweep/sweep:fyt": `bad_input: no task "sweep/sweep:fyt"; this worker has curve, embed, serve, sweep/score:score, sweep/sweep:fit, train; did you mean "sweep/sweep:fit"?`,
		"quite different": `bad_input: no task "quite different"; this worker has curve, embed, serve, sweep/score:score, sweep/sweep:fit, train; name the task in the worker's file, or use one of these`,
	} {
		_, err := tasks.Find(name)
		require.EqualError(t, err, want)
	}
}

func TestCatalog_TheLongestPrefixWins(t *testing.T) {
	dir := site(t)
	c, err := load(t, dir, `
pools: [{name: cpu, devices: cpu}]
tasks:
  "*": {python_dir: .}
  "a/*": {python_dir: tasks}
  "a/b/*": {python_dir: tasks/deeper}
`)
	require.NoError(t, err)
	_, tasks, err := c.Plan(onlyCPU(t))
	require.NoError(t, err)
	for name, want := range map[string]string{"embed:embed": "", "a/sweep:fit": "tasks", "a/b/secret:open": "tasks/deeper"} {
		task, err := tasks.Find(name)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, want), task.Dir, name)
	}
}

func TestDidYouMean(t *testing.T) {
	known := []string{"embed", "train", "gpus_per_slot"}
	require.Equal(t, `did you mean "embed"?`, didYouMean("Embde", append(known, "embde")[:3]))
	require.Equal(t, `did you mean "gpus_per_slot"?`, didYouMean("gpu_per_slots", known))
	require.Empty(t, didYouMean("zebra", known))
	require.Empty(t, didYouMean("x", nil))
	require.Equal(t, 3, distance("kitten", "sitting"))
	require.Equal(t, 5, distance("", "train"))
}
