package slot_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/test/wiretest"
)

// onBoard is a stand whose task sends no message about results. The worker must find them
// on the board.
func onBoard(t *testing.T) (*stand, launch.Task) {
	t.Helper()
	t.Parallel()
	if runtime.GOOS != "linux" {
		rig.Because(t, rig.Linux, "boards do")
	}
	s := newStand(t, gpumux.ModePersistent)
	task := s.task("item", "QUIET", "1")
	task.Python = "board.py:item"
	return s, task
}

// quick makes n items that take almost no time. The one at position at has further
// fields.
func quick(n, at int, fields object) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = object{"i": i}
	}
	if fields != nil {
		fields["i"] = at
		list[at] = fields
	}
	return list
}

// sequence checks that the results are those of the first n items, in order.
func sequence(t *testing.T, got []calls.Done, n int) {
	t.Helper()
	require.Len(t, got, n)
	for i, d := range got {
		require.EqualValues(t, i, d.Index)
		require.Nil(t, d.Fault)
		require.True(t, strings.HasPrefix(string(d.Value), fmt.Sprintf("[%d,", i)), "%.60s", d.Value)
	}
}

// Death at any moment keeps all published results, although no message told of them. Only
// the item that ran runs again.
func TestBoard_DeathLosesNothingAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"kill", "unpublished", "half"} {
		t.Run(how, func(t *testing.T) {
			s, task := onBoard(t)
			items := quick(300, 200, object{"how": how})
			got, err := s.run(task, slot.Call{Work: work(items...)})
			sequence(t, got, 200)
			f := fault(t, err)
			require.Equal(t, gpumux.FaultCrash, f.Kind)
			require.Equal(t, "signal SIGKILL", f.Exit)
			require.Empty(t, s.left())
			got, err = s.run(task, slot.Call{Work: work(items[201:]...)})
			require.NoError(t, err)
			require.Len(t, got, 99)
			begun := s.begun()
			require.Len(t, begun, 300, "each item began once")
			for i, n := range begun {
				require.Equal(t, fmt.Sprint(i), n)
			}
		})
	}
}

// The worker sees results on the board while a long item runs. That item ends only when
// the worker has seen them.
func TestBoard_ResultsAreSeenWhileALongItemRuns(t *testing.T) {
	s, task := onBoard(t)
	gate := filepath.Join(t.TempDir(), "gate")
	var got []calls.Done
	err := s.Run(t.Context(), task, slot.Call{Work: &gputest.Work{From: gputest.Values(quick(10, 9, object{"how": "gate", "gate": gate})...), OnDone: func(d calls.Done) {
		if got = append(got, d); len(got) == 9 {
			assert.NoError(t, os.WriteFile(gate, nil, 0o644))
		}
	}}})
	require.NoError(t, err)
	sequence(t, got, 10)
}

func TestBoard_TimeoutKeepsWhatLiesThere(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stop", "hang"} {
		t.Run(how, func(t *testing.T) {
			s, task := onBoard(t)
			got, err := s.run(task, slot.Call{Call: calls.Call{Timeout: patience}, Work: work(quick(80, 70, object{"how": how})...)})
			sequence(t, got, 70)
			f := fault(t, err)
			require.Equal(t, gpumux.FaultTimeout, f.Kind)
			require.Contains(t, f.Message, "no result after 1.2s")
			require.Len(t, s.begun(), 71)
			require.Empty(t, s.left())
		})
	}
}

// The limit is for each item, also when no message comes for a long time.
func TestBoard_TimeoutCountsFromTheItemsOwnBeginning(t *testing.T) {
	s, task := onBoard(t)
	items := make([]any, 8)
	for i := range items {
		items[i] = object{"i": i, "nap": 0.35}
	}
	got, err := s.run(task, slot.Call{Call: calls.Call{Timeout: patience}, Work: work(items...)})
	require.NoError(t, err)
	sequence(t, got, 8)
}

func TestBoard_CancelAndStopKeepWhatLiesThere(t *testing.T) {
	for _, how := range []string{"cancel", "stop"} {
		t.Run(how, func(t *testing.T) {
			s, task := onBoard(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var got []calls.Done
			ended := make(chan error, 1)
			go func() {
				ended <- s.Run(ctx, task, slot.Call{Work: &gputest.Work{From: gputest.Values(quick(80, 70, object{"how": "hang"})...), OnDone: func(d calls.Done) { got = append(got, d) }}})
			}()
			rig.Wait(t, func() bool { return len(s.begun()) == 71 }, time.Minute, 2*time.Millisecond)
			want := errors.New("enough")
			if how == "cancel" {
				cancel(want)
			} else {
				want = slot.ErrStopped
				require.NoError(t, s.Stop(t.Context()))
			}
			require.ErrorIs(t, <-ended, want)
			sequence(t, got, 70)
			require.Empty(t, s.left())
		})
	}
}

// Values of every size come in order, also those that do not fit on the board. So does a
// fault.
func TestBoard_SizesAndFaultsKeepTheOrder(t *testing.T) {
	s, task := onBoard(t)
	sizes := []int{0, 3 << 20, 1, 250 << 10, 300 << 10, 7, 262144 - 4, 262144 - 5, 262144 - 8, 5 << 20, 0}
	var items []any
	for i := range 110 {
		items = append(items, object{"i": i, "size": sizes[i%len(sizes)]})
	}
	items[53] = object{"i": 53, "how": "raise"}
	got, err := s.run(task, slot.Call{Work: work(items...)})
	require.NoError(t, err)
	require.Len(t, got, 110)
	for i, d := range got {
		require.EqualValues(t, i, d.Index)
		if i == 53 {
			require.Equal(t, gpumux.FaultTaskError, d.Fault.Kind)
			continue
		}
		var value [2]any
		require.NoError(t, json.Unmarshal(d.Value, &value))
		require.EqualValues(t, i, value[0])
		require.Len(t, value[1], sizes[i%len(sizes)])
	}
}

// When the worker takes results slowly, the process waits while the board is full.
func TestBoard_FullBoardHoldsTheProcess(t *testing.T) {
	s, task := onBoard(t)
	items := make([]any, 60)
	for i := range items {
		items[i] = object{"i": i, "size": 100 << 10}
	}
	highest := 0
	var got []calls.Done
	err := s.Run(t.Context(), task, slot.Call{Work: &gputest.Work{From: gputest.Values(items...), OnDone: func(d calls.Done) {
		got = append(got, d)
		log, err := os.ReadFile(s.log)
		assert.NoError(t, err)
		highest = max(highest, len(strings.Fields(string(log)))-len(got))
	}}})
	require.NoError(t, err)
	sequence(t, got, 60)
	require.LessOrEqual(t, highest, 22, "what is begun and not taken fits on the board and into one that was read, besides two items")
}

// A forked child that returns from the task must not answer, whether or not Python knows
// of the fork.
func TestBoard_ForkedChildrenDoNotWrite(t *testing.T) {
	for _, how := range []string{"fork", "raw fork"} {
		t.Run(how, func(t *testing.T) {
			s, task := onBoard(t)
			got, err := s.run(task, slot.Call{Work: work(quick(100, 50, object{"how": how})...)})
			require.NoError(t, err)
			sequence(t, got, 100)
			begun := s.begun()
			require.Len(t, begun, 100)
		})
	}
}

// scribble is the part of faulty that breaks the board. It returns whether it knows the
// way how.
func scribble(how string, say func(header, body string)) bool {
	board := os.NewFile(wiretest.BoardDescriptor, "board")
	post := func(end uint64, record []byte) {
		board.WriteAt(record, 64)
		board.WriteAt(binary.LittleEndian.AppendUint64(nil, end), 0)
	}
	record := func(size uint32, run uint64, value string) []byte {
		b := binary.LittleEndian.AppendUint32(nil, size)
		b = binary.LittleEndian.AppendUint32(b, 1)
		b = binary.LittleEndian.AppendUint64(b, run)
		return append(append(b, make([]byte, 40)...), value...)
	}
	switch how {
	case "board: told of more than there is":
		say(`{"type":"posted","board":9007199254740992}`, "")
	case "board: another run":
		post(64, record(1, 9, "7       "))
	case "board: no JSON":
		post(64, record(2, 1, "]]      "))
	case "board: one result, then garbage":
		post(128, append(record(1, 1, "7       "), record(200, 1, "7       ")...))
	case "board: cut short":
		if err := board.Truncate(0); err == nil {
			board.WriteAt([]byte("it let itself be cut"), 0)
		}
		say(`{"type":"posted","board":56}`, "")
	default:
		return false
	}
	return true
}

const largePy = `
import time
def large(x):
    time.sleep(x)
    return "x" * (1 << 21)
`

// A value too large for the board comes in a message, which does not say when its item
// ended. The next item, sent long before, has its own time all the same.
func TestSlot_ALargeValueLeavesTheNextItemItsTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "large.py"), []byte(largePy), 0o644))
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t)})
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	items := []any{0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 4.0, 4.0}
	got, err := run(t, s, launch.Task{Name: "large", Python: "large.py:large", Dir: dir}, slot.Call{Call: calls.Call{Timeout: 7500 * time.Millisecond}, Work: work(items...)})
	require.NoError(t, err)
	require.Len(t, got, len(items))
}
