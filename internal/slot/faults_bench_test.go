package slot_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

// BenchmarkSlot_FromDeathToNextItem measures the time from the moment when an item kills
// its process to the moment when the next item runs in the same slot. The processes read
// the clock at both ends. Beside it stands the time that the interpreter takes to start.
func BenchmarkSlot_FromDeathToNextItem(b *testing.B) {
	b.Run("Interpreter", func(b *testing.B) {
		// python3 may be a script of a version manager. The slot looks behind it too.
		path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
		require.NoError(b, err)
		var total time.Duration
		for b.Loop() {
			began := time.Now()
			out, err := exec.Command(string(bytes.TrimSpace(path)), "-c", "import time; print(time.time_ns())").Output()
			require.NoError(b, err)
			total += nanoseconds(b, out) - time.Duration(began.UnixNano())
		}
		b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N), "ms/start")
	})
	for how, script := range map[string]string{
		"Killed":   "os.kill(os.getpid(), 9)",
		"Segfault": "ctypes.string_at(0)",
		"Raised":   "raise MemoryError()", // the worker ends the process
	} {
		b.Run(how, func(b *testing.B) {
			dir := b.TempDir()
			file := filepath.Join(dir, "death")
			code := "import ctypes, os, time\ndef item(x):\n    if x: return time.time_ns()\n" +
				"    open('" + file + "', 'w').write(str(time.time_ns()))\n    " + script + "\n"
			require.NoError(b, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte(code), 0o644))
			s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(b)})
			defer s.Stop(context.Background())
			var got []byte
			call := slot.Call{Work: &gputest.Work{OnDone: func(d calls.Done) { got = d.Value }}}
			var total time.Duration
			for b.Loop() {
				call.Work = work(0)
				var fault *gpumux.Fault
				require.ErrorAs(b, s.Run(context.Background(), python(dir, "item"), call), &fault)
				call.Work = work(1)
				require.NoError(b, s.Run(context.Background(), python(dir, "item"), call))
				death, err := os.ReadFile(file)
				require.NoError(b, err)
				total += nanoseconds(b, got) - nanoseconds(b, death)
			}
			b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N), "ms/recovery")
		})
	}
}

func nanoseconds(b *testing.B, text []byte) time.Duration {
	b.Helper()
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	require.NoError(b, err)
	return time.Duration(n)
}
