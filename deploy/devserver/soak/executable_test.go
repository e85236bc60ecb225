//go:build soak

package soak

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// built is the folder of build's program; TestMain deletes it.
var built string

// build makes the all-in-one program, once for all tests. GPUMUX_SOAK_BINARY is used in its place.
var build = sync.OnceValues(func() (_ string, err error) {
	if given := os.Getenv("GPUMUX_SOAK_BINARY"); given != "" {
		return given, nil
	}
	if built, err = os.MkdirTemp("", "gpumux-soak-"); err != nil {
		return "", err
	}
	path := filepath.Join(built, "gpumux")
	out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "../cmd/gpumux").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build gpumux: %w\n%s", err, out)
	}
	return path, nil
})

func executable(t *testing.T) string {
	t.Helper()
	path, err := build()
	require.NoError(t, err)
	return path
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}
