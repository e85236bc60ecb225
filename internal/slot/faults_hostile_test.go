package slot_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// TestSlot_Hostile runs tasks that try on purpose to stay or to hide. The results before
// that are exact. When the call ends, nothing is left of them. Neither the next call nor
// a neighbour notices.
func TestSlot_Hostile(t *testing.T) {
	undisturbed := neighbour(t)
	t.Run("Ways", func(t *testing.T) {
		for _, c := range []struct {
			how string
			// hangs means that the item does not return; leaves is the number of processes that it
			// leaves then.
			hangs  bool
			leaves int
		}{
			{how: "memory", leaves: 2},
			{how: "subreaper", leaves: 5},
			{how: "traced child", leaves: 3},
			{how: "namespaces", leaves: 4},
			{how: "vfork", hangs: true},
			{how: "stop group", hangs: true},
			{how: "breed", hangs: true},
		} {
			for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
				t.Run(fmt.Sprintf("%s/%s", c.how, mode), func(t *testing.T) {
					t.Parallel()
					if c.how == "vfork" && native() == "" {
						rig.Because(t, rig.Compiler)
					}
					s := newStand(t, mode)
					task := s.task("item")
					task.Python = "hostile.py:item"
					items := gputest.Values(object{"i": 0}, object{"i": 1, "how": c.how}, object{"i": 2})
					call := slot.Call{Call: calls.Call{Timeout: time.Minute}, Work: &gputest.Work{From: items}}
					if c.hangs {
						call.Timeout = 4 * patience
					}
					got, err := s.run(task, call)
					if c.hangs {
						require.Equal(t, gpumux.FaultTimeout, fault(t, err).Kind)
						require.Equal(t, []int{0}, numbers(t, got))
						require.Equal(t, []string{"0", "1"}, s.begun())
					} else {
						require.NoError(t, err)
						if f := got[1].Fault; f != nil && strings.Contains(f.Message, "no namespaces here") {
							rig.Because(t, rig.Kernel, "it gives a process no namespaces")
						}
						require.Equal(t, []int{0, 1, 2}, numbers(t, got))
						if mode == gpumux.ModePersistent {
							// A process that forks and ends during the count is missed, as is its child. So
							// count again.
							rig.Wait(t, func() bool { return len(s.left()) >= c.leaves }, time.Minute, time.Millisecond)
							require.NoError(t, s.Clear(t.Context()))
						}
					}
					require.Empty(t, s.left(), "nothing is left when the end is told")
					s.works()
				})
			}
		}
	})
	undisturbed()
}
