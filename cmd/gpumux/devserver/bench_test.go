package devserver

import (
	"testing"
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

func folders(b *testing.B) map[string]string {
	return map[string]string{"memory": "", "file": b.TempDir()}
}
