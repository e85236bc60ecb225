package slot_test

import (
	"iter"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// A process that is recycled for what others did costs no item an attempt, and what had
// finished counts.
func TestSlot_Recycle(t *testing.T) {
	s := newStand(t, gpumux.ModePersistent)
	require.NoError(t, s.Recycle(t.Context(), "nothing to end"))
	s.works()
	idle := s.PID()
	require.NoError(t, s.Recycle(t.Context(), "a neighbour failed"))
	require.Equal(t, slot.Vacant, s.State())
	require.Zero(t, s.PID())
	require.NoDirExists(t, "/proc/"+strconv.Itoa(idle))

	for name, each := range map[string]struct {
		task  launch.Task
		items iter.Seq2[calls.Item, error]
	}{
		"Python": {s.task("item"), gputest.Values(object{"i": 1}, object{"i": 2, "nap": 3600})},
		"command": {launch.Task{Name: "command", Command: []string{"sh", "-c", `read x; echo "$x" >> "$LOG"; [ "$x" = 1 ] || exec sleep 3600; echo "$x"`},
			Env: s.task("item").Env}, gputest.Values(1, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(s.begun())
			var got []calls.Done
			call := slot.Call{Work: &gputest.Work{From: each.items, OnDone: func(d calls.Done) { got = append(got, d) }}}
			ended := make(chan error, 1)
			go func() { ended <- s.Run(t.Context(), each.task, call) }()
			rig.Wait(t, func() bool { return len(s.begun()) == before+2 }, time.Minute, time.Millisecond)
			require.NoError(t, s.Recycle(t.Context(), "a neighbour failed"))
			f := fault(t, <-ended)
			require.Equal(t, gpumux.FaultCrash, f.Kind)
			require.Equal(t, "a neighbour failed", f.Message)
			require.True(t, f.Blameless)
			require.Len(t, got, 1, "the item before it")
			require.Nil(t, got[0].Fault)
			require.Empty(t, s.left())
			s.works()
		})
	}
}
