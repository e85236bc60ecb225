package workers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/slot"
)

func TestLongStarts(t *testing.T) {
	began, said := time.Now(), map[string]time.Time{}
	starts := []slot.Start{{Task: "embed", Began: began}, {Task: "embed", Began: began.Add(20 * time.Second)}, {Task: "quick", Began: began.Add(15 * time.Second)}}
	after := func(d time.Duration) []string { return longStarts(starts, began.Add(d), said) }
	require.Empty(t, after(29*time.Second))
	require.Equal(t, []string{"embed: 2 processes have been starting for 30s (importing)"}, after(30*time.Second))
	starts = starts[:2]
	require.Empty(t, after(5*time.Minute))
	require.Equal(t, []string{"embed: 2 processes have been starting for 5m30s (importing)"}, after(330*time.Second))
	starts = []slot.Start{{Task: "embed", Began: began.Add(300 * time.Second)}}
	require.Empty(t, after(340*time.Second), "process after process is no news")
}
