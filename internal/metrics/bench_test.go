package metrics

import (
	"testing"

	"go.uber.org/zap"
)

// What counting the time of an item costs, in a slot alone and in several at once.
func BenchmarkItems(b *testing.B) {
	took := New(zap.NewNop(), "", nil, nil).Items("gpu")
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			took.Observe(0.001)
		}
	})
	b.Run("several", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				took.Observe(0.001)
			}
		})
	})
	b.Run("slowest", func(b *testing.B) {
		for b.Loop() {
			took.Observe(7200)
		}
	})
}
