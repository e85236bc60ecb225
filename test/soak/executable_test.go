//go:build soak

package soak

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/test/programtest"
)

func executable(t *testing.T) string {
	t.Helper()
	path, err := programtest.Binary()
	require.NoError(t, err)
	return path
}

func TestMain(m *testing.M) { os.Exit(programtest.Main(m)) }
