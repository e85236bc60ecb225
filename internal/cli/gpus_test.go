package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/host"
)

// watched is what --watch prints of a host without GPU until it was interrupted after
// some looks.
func watched(t *testing.T, asJSON bool) string {
	t.Helper()
	inventory, err := gpu.Open(gpu.Options{NoNVML: true})
	require.NoError(t, err)
	var out bytes.Buffer
	ctx, interrupt := context.WithCancelCause(t.Context())
	looks := 0
	err = host.Watch(ctx, &out, time.Millisecond, asJSON, false, func() (*host.Report, error) {
		if looks++; looks == 3 {
			interrupt(app.ErrInterrupted)
		}
		return host.Inspect(inventory, false)
	})
	require.Equal(t, app.ExitInterrupted, exitCode(err))
	return out.String()
}

func TestGpus_WatchPrintsABlockPerLook(t *testing.T) {
	blocks := strings.Split(strings.TrimRight(watched(t, false), "\n"), "\n\n")
	require.GreaterOrEqual(t, len(blocks), 3)
	for _, block := range blocks {
		lines := strings.Split(block, "\n")
		require.Len(t, lines, 4, "%s", block)
		_, err := time.Parse(time.RFC3339, lines[0])
		require.NoError(t, err)
		require.Contains(t, lines[1], "NVML is switched off")
		require.True(t, strings.HasPrefix(lines[2], "DEVICE "))
		require.True(t, strings.HasPrefix(lines[3], "cpu "))
	}
}

func TestGpus_WatchPrintsALineOfJSONPerLook(t *testing.T) {
	lines := strings.Split(strings.TrimRight(watched(t, true), "\n"), "\n")
	require.GreaterOrEqual(t, len(lines), 3)
	for _, line := range lines {
		var r host.Report
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.NotNil(t, r.Time)
		require.Equal(t, gpu.CPU, r.Devices[0].UUID)
	}
}

// interrupts sends Ctrl-C when something is printed.
type interrupts struct{ signals chan os.Signal }

func (i interrupts) Write(p []byte) (int, error) {
	select {
	case i.signals <- os.Interrupt:
	default:
	}
	return len(p), nil
}

func TestGpus_WatchEndsWithCtrlC(t *testing.T) {
	signals := make(chan os.Signal, 1)
	code := Main(Options{Args: []string{"gpus", "--watch"}, Stdout: interrupts{signals}, Stderr: io.Discard, Signals: signals})
	require.Equal(t, app.ExitInterrupted, code)
}
