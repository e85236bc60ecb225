package local_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/local"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(text), 0o755))
}

func TestFindTask_EditionOfTaskAndReduce(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "join.py", "def join(pair): return pair")
	find := func(reduce string) string {
		task, err := local.FindTask("json:dumps", local.TaskOptions{Reduce: reduce})
		require.NoError(t, err)
		return task.Edition
	}
	before := find("join.py:join")
	require.Len(t, before, 6)
	write(t, "join.py", "def join(pair): return 1")
	require.NotEqual(t, before, find("join.py:join"))
}
