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
		require.Equal(t, gpumux.FaultBadInput, fault.Kind, "%q", name)
	}
}

// What a module has from elsewhere, or defines below its top level, is no function of it.
// What only looks like one is refused when it is loaded.
func TestCatalog_ReadsModules(t *testing.T) {
	tasks, dir := testCatalog(t)
	file := filepath.Join(dir, "tasks", "doc.py")
	require.NoError(t, os.WriteFile(file, []byte(`"""How to write one:

def system(item):
    ...
"""
from os import system
if True:
    from os import execv
    def popen(item): ...
spawn = system
async def good(item) -> None: ...
@staticmethod
def better (
    item): ...
def größe[T](item: T): ...
`), 0o644))
	for _, name := range []string{"execv", "popen", "spawn", "goo", "gr"} {
		_, err := tasks.Find("sweep/doc:" + name)
		var fault *gpumux.Fault
		require.ErrorAs(t, err, &fault, name)
		require.Equal(t, gpumux.FaultBadInput, fault.Kind, name)
	}
	require.Subset(t, tasks.Names(), []string{"sweep/doc:good", "sweep/doc:better", "sweep/doc:größe"})
	for _, name := range []string{"good", "system"} {
		task, err := tasks.Find("sweep/doc:" + name)
		require.NoError(t, err)
		require.True(t, task.OwnModule)
	}
	require.NoError(t, os.Chmod(file, 0))
	_, err := tasks.Find("sweep/later:now")
	require.ErrorContains(t, err, "sweep/sweep:fit", "the others are still there")
}

func TestCatalog_SaysWhatThereIs(t *testing.T) {
	tasks, _ := testCatalog(t)
	for name, want := range map[string]string{
		"embd":            `bad_input: no task "embd"; this worker has curve, embed, serve, sweep/score:score, sweep/sweep:fit, train; name the task in the worker's file, or use one of these`,
		"sweep/sweep:fyt": `bad_input: no task "sweep/sweep:fyt"; this worker has curve, embed, serve, sweep/score:score, sweep/sweep:fit, train; name the task in the worker's file, or use one of these`,
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
