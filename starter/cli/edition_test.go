package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLocalTask_EditionOfTaskAndReduce(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "join.py", "def join(pair): return pair")
	local, err := parseLocalTask("json:dumps", nil, localFlags{}, "")
	require.NoError(t, err)
	require.Equal(t, local.edition, local.whole())
	reduce := "join.py:join"
	require.NoError(t, local.reduceWith(&reduce, localFlags{}))
	before := local.whole()
	require.Len(t, before, 6)
	write(t, "join.py", "def join(pair): return 1")
	require.NoError(t, local.reduceWith(&reduce, localFlags{}))
	require.NotEqual(t, before, local.whole())
}
