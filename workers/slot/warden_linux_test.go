package slot_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot"
)

// ward is a stand with a fence of its own.
type ward struct {
	*stand
	fence *slot.Fence
	seen  *observer.ObservedLogs
	gate  string
	token string
}

func newWard(t *testing.T) *ward {
	t.Helper()
	core, seen := observer.New(zap.InfoLevel)
	w := &ward{fence: slot.NewFence(zap.New(core)), seen: seen, gate: filepath.Join(t.TempDir(), "gate")}
	t.Cleanup(func() {
		w.fence.Close()
		if w.token != "" {
			require.Empty(t, wardens(t, w.token), "a closed fence has no warden")
		}
	})
	w.stand = newStand(t, gpumux.Persistent)
	require.NoError(t, w.Stop(context.Background()))
	w.Slot = slot.New(slot.Options{
		Name: "cpu/1", Device: "CPU", Runtime: runtimePath(t), Grace: 150 * time.Millisecond, Fence: w.fence,
	})
	return w
}

// waits begins a call whose first item leaves a descendant that got away and whose second waits for the gate, in its import where
// that is asked for. The channel has what came of it.
func (w *ward) waits(loading bool) (ended chan []slot.Done) {
	w.t.Helper()
	task := w.task("guarded")
	if loading {
		task = w.task("guarded", "LOAD_GATE", w.gate)
	}
	ended = make(chan []slot.Done, 1)
	var got []slot.Done
	call := slot.Call{Task: task, Items: values("daemon", w.gate), Done: func(d slot.Done) { got = append(got, d) }}
	go func() {
		if err := w.Run(context.Background(), call); err != nil {
			w.t.Error(err)
		}
		ended <- got
	}()
	processes := 2
	if loading {
		processes = 1
	}
	require.Eventually(w.t, func() bool { return len(w.left()) == processes }, 60*time.Second, 5*time.Millisecond)
	if !loading {
		require.Eventually(w.t, func() bool { return len(w.begun()) == 2 }, 60*time.Second, 5*time.Millisecond)
	}
	w.token = tokenOf(w.t, w.left()[0])
	return ended
}

// goesOn opens the gate: nothing of the call was harmed.
func (w *ward) goesOn(ended chan []slot.Done) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(w.gate, nil, 0o644))
	got := <-ended
	require.Len(w.t, got, 2)
	require.Equal(w.t, string(got[0].Value), string(got[1].Value), "one process ran both items")
}

// guards lets the deadline pass: everything ends, also what was started under a warden before.
func (w *ward) guards() {
	w.t.Helper()
	require.NotEmpty(w.t, w.left())
	require.NoError(w.t, w.fence.Hold(slot.Uptime()+300*time.Millisecond))
	require.Eventually(w.t, func() bool { return len(w.left()) == 0 }, 60*time.Second, 5*time.Millisecond)
	require.NoError(w.t, w.fence.Hold(slot.Uptime()+time.Minute), "the sweep is over")
	w.works()
	require.NoError(w.t, w.fence.Free())
}

// whole waits until there is a warden other than those, with both parts, and returns it.
func (w *ward) whole(than []helper) (now []helper) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		now = wardens(w.t, w.token)
		return len(now) == 2 && !slices.ContainsFunc(now, func(each helper) bool { return slices.Contains(than, each) })
	}, 60*time.Second, 2*time.Millisecond)
	return now
}

// helper is one part of a warden.
type helper struct {
	pid    int
	fencer bool
}

// wardens are the living parts of the warden that knows processes by a token.
func wardens(t *testing.T, token string) (list []helper) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range files {
		words, _ := os.ReadFile(file)
		if !bytes.Contains(words, []byte("\x00gpumux-warden\x00"+token+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
		require.NoError(t, err)
		list = append(list, helper{pid, bytes.Contains(words, []byte("swept="))})
	}
	return list
}

// tokenOf is the mark of the worker in the environment of a process as left lists it.
func tokenOf(t *testing.T, process string) string {
	t.Helper()
	file, _, _ := strings.Cut(process, " ")
	env, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, pair := range strings.Split(string(env), "\x00") {
		if strings.HasPrefix(pair, "GPUMUX_WORKER=") {
			return pair
		}
	}
	t.Fatalf("%s has no mark", process)
	return ""
}

// childOf is a process that the fencer has started: its sleep.
func childOf(pid int) int {
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	child, _ := strconv.Atoi(strings.TrimSpace(string(list)))
	return child
}

// A warden that somebody kills or stops is replaced at once by one that guards what lives; what runs does not notice.
func TestFence_AWardenThatIsLostIsReplaced(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		hit    func(helper) int // the process that is hit, or 0
	}{
		{"KillSweeper", syscall.SIGKILL, func(h helper) int { return h.pid * pick(!h.fencer) }},
		{"KillFencer", syscall.SIGKILL, func(h helper) int { return h.pid * pick(h.fencer) }},
		{"KillBoth", syscall.SIGKILL, func(h helper) int { return h.pid }},
		{"StopSweeper", syscall.SIGSTOP, func(h helper) int { return h.pid * pick(!h.fencer) }},
		{"StopFencer", syscall.SIGSTOP, func(h helper) int { return h.pid * pick(h.fencer) }},
		{"StopBoth", syscall.SIGSTOP, func(h helper) int { return h.pid }},
		// Its parent lives and waits: only that it says nothing tells.
		{"StopSleep", syscall.SIGSTOP, func(h helper) int { return childOf(h.pid) * pick(h.fencer) }},
	} {
		for _, when := range []string{"Middle", "Start", "Idle"} {
			t.Run(c.name+"/"+when, func(t *testing.T) {
				t.Parallel()
				w := newWard(t)
				require.NoError(t, w.fence.Hold(slot.Uptime()+5*time.Minute))
				ended := w.waits(when == "Start")
				if when == "Idle" {
					w.goesOn(ended)
				}
				before := w.whole(nil)
				hit := 0
				for hit == 0 { // the sleep is between two of its lives for a moment
					for _, each := range before {
						if pid := c.hit(each); pid > 0 && syscall.Kill(pid, c.signal) == nil {
							hit++
						}
					}
				}
				w.whole(before)
				require.Eventually(t, func() bool { return w.seen.Len() == 1 }, 60*time.Second, 2*time.Millisecond)
				require.Contains(t, w.seen.All()[0].Message, "another took its place")
				require.EqualValues(t, 1, w.fence.Lost())
				if when != "Idle" {
					w.goesOn(ended)
				}
				w.guards()
				require.Equal(t, 1, w.seen.Len())
			})
		}
	}
}

func pick(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// Wardens that end again and again: three are replaced at once, then with pauses, in which nothing starts and the worker says what
// to do.
func TestFence_WardensThatEndAgainAndAgain(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	ended := w.waits(false)
	none := []helper{}
	for range 4 {
		before := w.whole(none)
		require.NoError(t, syscall.Kill(before[0].pid, syscall.SIGKILL))
		none = append(none, before...)
		require.Eventually(t, func() bool { return w.seen.Len() == len(none)/2 }, 60*time.Second, time.Millisecond)
	}
	last := w.seen.All()[3]
	require.Equal(t, zap.ErrorLevel, last.Level)
	require.Contains(t, last.Message, "nothing starts before there is one")
	require.Contains(t, last.ContextMap()["advice"], "find out what ends it")
	err := w.fence.Hold(slot.Uptime() + time.Minute)
	if err != nil { // before the pause was over
		require.ErrorContains(t, err, "was lost 4 times in a row (it ended: signal: killed)")
		other := newStand(t, gpumux.Persistent)
		require.NoError(t, other.Stop(t.Context()))
		other.Slot = slot.New(slot.Options{Name: "cpu/2", Device: "CPU", Runtime: runtimePath(t), Fence: w.fence})
		if _, err = other.run(slot.Call{Task: other.task("item"), Items: values(object{"i": 0})}); err != nil {
			f := fault(t, err)
			require.True(t, f.Blameless)
			require.Equal(t, "start", f.Op)
			require.Contains(t, f.Hint, "find out what ends it")
		}
	}
	again := func() bool { return w.fence.Hold(slot.Uptime()+time.Minute) == nil }
	require.Eventually(t, again, 60*time.Second, time.Millisecond)
	require.Equal(t, 1, w.seen.FilterMessageSnippet("has a warden again").Len(), "whoever started it")
	w.whole(none)
	require.EqualValues(t, 4, w.fence.Lost())
	w.goesOn(ended)
	w.guards()
}

// The worker stands still, and its warden is gone too: when it goes on its calls are over, as if the warden had ended them.
func TestFence_AWardenThatEndsWhileItsProgramIsStopped(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"Kill": syscall.SIGKILL, "Stop": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, program, next := newFenced(t)
			token := ""
			for _, each := range s.left() {
				if !strings.Contains(each, "FAULTS=") { // the one that has cleared its environment
					token = tokenOf(t, each)
				}
			}
			before := wardens(t, token)
			require.Len(t, before, 2)
			require.NoError(t, program.Process.Signal(syscall.SIGSTOP))
			stopped := slot.Uptime()
			for _, each := range before {
				require.NoError(t, syscall.Kill(each.pid, signal))
			}
			require.Eventually(t, func() bool { return slot.Uptime() > stopped+4*time.Second }, 60*time.Second, 10*time.Millisecond)
			require.NoError(t, program.Process.Signal(syscall.SIGCONT))
			for _, want := range []string{"ended true false", "again", "again", "served", "again", "again", "served", "freed"} {
				require.Equal(t, want, next())
			}
			require.NoError(t, program.Wait())
			nothing := func() bool { return len(s.left()) == 0 && len(wardens(t, token)) == 0 }
			require.Eventually(t, nothing, 60*time.Second, 5*time.Millisecond)
		})
	}
}

// holder starts a process that holds the lock of its memory, with a mark or none. It is no child of this program, which reads the
// environments of its own. The channel has what it says.
func holder(t *testing.T, mark string) (holds *exec.Cmd, begin func(), said chan string) {
	t.Helper()
	holds = exec.Command("/bin/sh", "-c", `env "$0" python3 testdata/holder.py 32; :`, mark)
	holds.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := holds.StdinPipe()
	require.NoError(t, err)
	out, err := holds.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holds.Start())
	t.Cleanup(func() {
		syscall.Kill(-holds.Process.Pid, syscall.SIGKILL)
		holds.Wait()
	})
	said = make(chan string, 3)
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said <- lines.Text()
		}
	}()
	return holds, func() {
		fmt.Fprintln(in)
		require.Equal(t, "begun", <-said)
	}, said
}

// The environment of a process that holds the lock of its memory cannot be read. If it is a stranger's, everything else ends at the
// deadline all the same, also what is known by its environment alone, and other calls begin; if it is one of ours, it ends too.
// Not parallel: other tests read environments too.
func TestFence_AProcessThatHoldsTheLockOfItsMemory(t *testing.T) {
	for _, ours := range []bool{false, true} {
		t.Run(fmt.Sprintf("Ours=%t", ours), func(t *testing.T) {
			w := newWard(t)
			require.NoError(t, w.fence.Hold(slot.Uptime()+5*time.Minute))
			ran := make(chan error, 1)
			task := slot.Task{Name: "sleep", Command: []string{"sleep", "600"}, Env: w.task("sleep").Env}
			go func() {
				ran <- w.Run(context.Background(), slot.Call{Task: task, Items: values(0), Done: func(slot.Done) {}})
			}()
			require.Eventually(t, func() bool { return len(w.left()) == 1 }, 60*time.Second, 5*time.Millisecond)
			w.token = tokenOf(t, w.left()[0])
			// Its limit is another: it has the environment only.
			marked := exec.Command("sleep", "600")
			marked.Env, marked.SysProcAttr = []string{w.token}, &syscall.SysProcAttr{Setpgid: true}
			require.NoError(t, marked.Start())
			mark := "STRANGER=1"
			if ours {
				mark = w.token
			}
			holds, begin, said := holder(t, mark)
			require.NoError(t, w.fence.Hold(slot.Uptime()+500*time.Millisecond))
			begin()
			require.ErrorContains(t, marked.Wait(), "killed")
			require.Error(t, <-ran)
			if !ours {
				require.Empty(t, said, "the lock is still held")
			}
			require.NoError(t, w.fence.Hold(slot.Uptime()+time.Minute))
			if ours {
				for range said { // until it has ended; its input is open so long
				}
				require.ErrorContains(t, holds.Wait(), "killed")
			} else {
				require.Equal(t, "over", <-said, "a stranger lives")
			}
			w.works()
			require.NoError(t, w.fence.Free())
			require.Zero(t, w.fence.Lost())
		})
	}
}

// Two workers of one program have a fence each: the deadline of one, and its end, are nothing to the other.
func TestFence_TwoInOneProgram(t *testing.T) {
	t.Parallel()
	one, two := newWard(t), newWard(t)
	require.NoError(t, two.fence.Hold(slot.Uptime()+5*time.Minute))
	first, second := one.waits(false), two.waits(false)
	one.goesOn(first)
	one.guards()
	require.Len(t, two.left(), 2)
	require.NoError(t, one.Stop(t.Context()))
	one.fence.Close()
	require.Empty(t, wardens(t, one.token))
	require.Len(t, wardens(t, two.token), 2)
	require.ErrorContains(t, one.fence.Hold(slot.Uptime()+time.Minute), "closed")
	two.goesOn(second)
	two.guards()
	require.Zero(t, one.seen.Len()+two.seen.Len())
}
