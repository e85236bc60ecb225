package slot_test

import (
	"context"
	"encoding/json"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

// burning uses an item's number of microseconds of processor time. It returns how much
// its process has used in all.
const burning = `
import time

def burn(us):
    end = time.thread_time() + us / 1e6
    while time.thread_time() < end:
        pass
    return time.process_time()
`

// BenchmarkSlot_PersistentItem measures what each item costs the Go side and the process,
// without the item's own work. The name is the length of the items. It measures processor
// time, which other work on the machine disturbs least.
func BenchmarkSlot_PersistentItem(b *testing.B) {
	for _, length := range []time.Duration{0, 100 * time.Microsecond, time.Millisecond, 14 * time.Millisecond} {
		b.Run(length.String(), func(b *testing.B) {
			dir := b.TempDir()
			require.NoError(b, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte(burning), 0o644))
			s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(b)})
			defer s.Stop(context.Background())
			one := calls.Item{Value: json.RawMessage(strconv.FormatInt(length.Microseconds(), 10))}
			items := func(n int) iter.Seq2[calls.Item, error] {
				return func(yield func(calls.Item, error) bool) {
					for range n {
						if !yield(one, nil) {
							return
						}
					}
				}
			}
			var used float64
			done := func(d calls.Done) { used, _ = strconv.ParseFloat(string(d.Value), 64) }
			call := slot.Call{Work: &gputest.Work{From: items(1), OnDone: done}}
			require.NoError(b, s.Run(context.Background(), python(dir, "burn"), call))
			call.Work = &gputest.Work{From: items(b.N), OnDone: done}
			b.ResetTimer()
			before, cpu := used, processor(b)
			require.NoError(b, s.Run(context.Background(), python(dir, "burn"), call))
			n := float64(b.N)
			b.ReportMetric((processor(b)-cpu).Seconds()*1e6/n, "go-µs/item")
			b.ReportMetric((used-before-length.Seconds()*n)*1e6/n, "python-µs/item")
		})
	}
}

// processor is the processor time that this program has used.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
