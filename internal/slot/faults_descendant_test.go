package slot_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
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

// Descendants may leave the group and hold standard output. They delay nothing, and they
// die with the process.
func TestSlot_DescendantsThatGotAway(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"fork", "exec", "clear", "replace"} {
		for _, end := range []string{"return", "stop", "die", "cancel"} {
			t.Run(how+"/"+end, func(t *testing.T) {
				t.Parallel()
				s := newStand(t, gpumux.ModePersistent)
				call := slot.Call{Work: work(how, "nothing")}
				switch end {
				case "die":
					call.Work = work(how, "die")
				case "return":
					call.Mode = gpumux.ModeFresh
				}
				got, err := s.run(s.task("daemon"), call)
				if end == "die" {
					require.Equal(t, gpumux.FaultCrash, fault(t, err).Kind)
					require.Len(t, got, 1)
				} else {
					require.NoError(t, err)
					require.Len(t, got, 2)
				}
				if end == "stop" || end == "cancel" {
					require.GreaterOrEqual(t, len(s.left()), 1)
					require.Equal(t, slot.Ready, s.State())
				}
				switch end {
				case "stop":
					require.NoError(t, s.Clear(t.Context()))
				case "cancel":
					s.canceled(s.task("item"), slot.Call{Work: work(object{"i": 0, "end": "stubborn"})})
				}
				require.Empty(t, s.left())
				s.works()
			})
		}
	}
}

func TestSlot_CancellationEndsWhateverHangs(t *testing.T) {
	for _, how := range []string{"stubborn", "stop", "bomb"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, gpumux.ModePersistent)
			s.canceled(s.task("item"), slot.Call{Work: work(object{"i": 0}, object{"i": 1, "end": how})})
			require.Equal(t, []string{"0", "1"}, s.begun())
			s.works()
		})
	}
}

func TestSlot_StopEndsWhateverHangs(t *testing.T) {
	for _, how := range []string{"stubborn", "stop", "bomb"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, gpumux.ModePersistent)
			ended := make(chan error, 1)
			call := slot.Call{Work: work(object{"i": 0, "end": how})}
			go func() { ended <- s.Run(t.Context(), s.task("item"), call) }()
			rig.Wait(t, func() bool { return len(s.begun()) > 0 }, time.Minute, 2*time.Millisecond)
			require.NoError(t, s.Stop(t.Context()))
			require.ErrorIs(t, <-ended, slot.ErrStopped)
			require.ErrorIs(t, s.Run(t.Context(), launch.Task{}, slot.Call{}), slot.ErrStopped)
			require.Empty(t, s.left())
		})
	}
}

// abandoned is a worker that the test kills. Its task has left descendants everywhere and
// hangs. It gets its task as JSON.
func abandoned() {
	var task launch.Task
	if err := json.Unmarshal([]byte(os.Getenv("TASK")), &task); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: os.Getenv("RUNTIME")})
	done := 0
	err := s.Run(context.Background(), task, slot.Call{Work: &gputest.Work{From: gputest.Values("fork", "exec", "clear", "hang"), OnDone: func(calls.Done) {
		if done++; done == 3 {
			fmt.Println("running")
		}
	}}})
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func TestSlot_DescendantsThatGotAwayDieWithAKilledWorker(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.ModePersistent)
	worker, out := s.program("abandoned", s.task("daemon"))
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "running", strings.TrimSpace(line))
	rig.Wait(t, func() bool { return len(s.left()) >= 4 }, time.Minute, time.Millisecond, "the process and its three descendants")
	require.NoError(t, worker.Process.Kill())
	io.Copy(io.Discard, out)
	worker.Wait()
	rig.Wait(t, func() bool { return len(s.left()) == 0 }, time.Minute, 5*time.Millisecond)
}
