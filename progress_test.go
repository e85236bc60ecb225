package gpumux_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func TestAdvice_NamesTheSlowestStage(t *testing.T) {
	stage := func(task, pool string, slots int, itemTime time.Duration) gpumux.StageProgress {
		return gpumux.StageProgress{Task: task, Ladder: []string{pool}, Slots: slots, ItemTime: gpumux.Duration(itemTime)}
	}
	decode, embed := stage("decode", "cpu", 6, 146*time.Millisecond), stage("embed", "gpu", 2, 33*time.Millisecond)
	pack := stage("pack", "io", 1, time.Millisecond)
	require.Equal(t, "embed waits for decode: 6 slots give 41.1/s, 9 would keep up with 60.6/s",
		gpumux.Advice([]gpumux.StageProgress{decode, embed, pack}))
	require.Equal(t, "embed waits for pack: 1 slot gives 1000/s, 3 would keep up with 2667/s",
		gpumux.Advice([]gpumux.StageProgress{pack, stage("embed", "gpu", 2, 750*time.Microsecond)}))
	require.Empty(t, gpumux.Advice([]gpumux.StageProgress{decode, stage("embed", "gpu", 1, 24*time.Millisecond)}), "nearly equal")
	require.Empty(t, gpumux.Advice([]gpumux.StageProgress{decode, stage("embed", "gpu", 2, 0)}), "a pace is not known")
	require.Empty(t, gpumux.Advice([]gpumux.StageProgress{decode, stage("embed", "cpu", 2, time.Millisecond)}), "one pool for both")
	require.Empty(t, gpumux.Advice([]gpumux.StageProgress{decode}))
}
