package cli

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHold_OneProcessPerFolder(t *testing.T) {
	data := t.TempDir()
	first, err := holdFolder(data, "embed-1")
	require.NoError(t, err)
	_, err = holdFolder(data, "embed-1")
	require.ErrorContains(t, err, "this map runs already in process "+strconv.Itoa(os.Getpid()))
	require.NotContains(t, err.Error(), "--data")
	_, err = holdFolder(data, "other")
	require.ErrorContains(t, err, "for map embed-1; give another --data")
	first.release()
	again, err := holdFolder(data, "other")
	require.NoError(t, err)
	again.release()
}
