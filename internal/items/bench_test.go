package items

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkSource measures the processor time that an item costs on its way into the
// store and out of it.
func BenchmarkSource(b *testing.B) {
	const n = 1 << 18
	for name, width := range map[string]int{"Short": 4, "Long": 400} {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "\"%06d%s\"\n", i, strings.Repeat("x", width))
		}
		b.Run(name+"/Spool", func(b *testing.B) {
			before := processorTime(b)
			for b.Loop() {
				s, err := spoolFrom(strings.NewReader(text.String()), Input{})
				require.NoError(b, err)
				require.NoError(b, s.Remove())
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N*n), "cpu-ns/item")
		})
		s := open(b, "file://"+b.TempDir())
		src, err := s.Sources.Put(b.Context(), spool(b, text.String(), JSONLines))
		require.NoError(b, err)
		for _, chunk := range []int64{10, 1 << 12} {
			b.Run(fmt.Sprintf("%s/Read%d", name, chunk), func(b *testing.B) {
				read, before := int64(0), processorTime(b)
				for b.Loop() {
					at := read % (n - chunk)
					for _, err := range s.Sources.Items(b.Context(), src, at, at+chunk) {
						if err != nil {
							b.Fatal(err)
						}
						read++
					}
				}
				b.ReportMetric(float64(processorTime(b)-before)/float64(read), "cpu-ns/item")
			})
		}
	}
}

// processorTime is the processor time that this process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
