package devserver

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

func BenchmarkStart(b *testing.B) {
	for name, data := range folders(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s := start(b, Options{Data: data})
				b.StopTimer()
				s.Stop()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkWorkflow is the round trip of a workflow with one activity, from start to
// result, through a worker.
func BenchmarkWorkflow(b *testing.B) {
	for name, data := range folders(b) {
		b.Run(name, func(b *testing.B) {
			c := dial(b, start(b, Options{Data: data}).Address())
			work(b, c)
			execute(b, c, "first", oneActivity)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				execute(b, c, strconv.Itoa(len(took)), oneActivity)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
		})
	}
}

func folders(b *testing.B) map[string]string {
	return map[string]string{"memory": "", "file": b.TempDir()}
}
