package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflow/v1"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/test/s3test"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/test/devservertest"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

const scalePy = `
import json, os, time

def note(item):
    with open(os.environ["CALLS"], "a") as f: f.write(f"{item}\n")
def brief(item):
    time.sleep(0.005); note(item); return item
def gate(item):
    # stops at every hundredth item until the test lets it on
    while item % 100 == 99 and not os.path.exists(os.environ["CALLS"] + f".open{item // 100}"): time.sleep(0.005)
    note(item); return item
def echo(item): return item
def half(item):
    if item % 2: raise ValueError("odd")
    return item / 2
def join(pair): return pair[0] + pair[1]
def text(item): return f"{item} "
def odd_pair(pair): raise ValueError("not these")
`

// envWorker makes the test binary a worker: the JSON of a hand.
const envWorker = "GPUMUX_E2E_WORKER"

// hand says what a worker in a process of its own serves.
type hand struct{ Address, Namespace, Dir, Store, Calls string }

func (h hand) config(slots int) config.Config {
	tasks := map[string]config.Task{}
	for _, f := range []string{"brief", "gate", "echo", "half", "join", "text", "odd_pair"} {
		tasks[f] = config.Task{Python: "scale.py:" + f, Env: map[string]string{"CALLS": h.Calls}}
	}
	c := onCPU(cpuPool{Pool: "cpu", Slots: slots, Tasks: tasks, Dir: h.Dir, Store: h.Store})
	c.Temporal = config.Temporal{Address: h.Address, Namespace: h.Namespace}
	return c
}

func init() {
	text := os.Getenv(envWorker)
	if text == "" {
		return
	}
	var h hand
	err := json.Unmarshal([]byte(text), &h)
	var w *workers.Worker
	if err == nil {
		w, err = workers.New(h.config(2), workers.Options{StopTimeout: time.Second, Grace: time.Second})
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err == nil {
		err = w.Start(ctx)
	}
	if err == nil {
		<-ctx.Done()
		err = w.Stop(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hand makes a site's workers serve the tasks of scale.py.
func (s *site) hand() hand {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "scale.py"), []byte(scalePy), 0o644))
	return hand{Address: devservertest.Run(s.t).Address(), Namespace: s.namespace, Dir: s.dir, Store: s.store, Calls: s.calls}
}

// start runs a worker in a process of its own until the test ends.
func (h hand) start(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(h)
	require.NoError(t, err)
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), envWorker+"="+string(text))
	c.Stderr = os.Stderr
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

func (s *site) starter() *starter.Starter {
	s.t.Helper()
	st := &starter.Starter{Client: s.client, Namespace: s.namespace, Store: s.store}
	s.t.Cleanup(st.Close)
	return st
}

// Five workers come and go as they like, some of them killed: every item has one result,
// and only what a killed worker had not stored yet ran again.
func TestLong_ScaleWorkersJoinAndLeave(t *testing.T) {
	comeAndGo(t, fromSeed(t, rand.Uint64()), 20_000, 8)
}

// TestSoak_WorkersJoinAndLeave is the same for some minutes.
func TestSoak_WorkersJoinAndLeave(t *testing.T) { comeAndGo(t, soaking(t), 200_000, 80) }

// comeAndGo replaces workers at random, so many times at most, while n items run.
func comeAndGo(t *testing.T, chance *rand.Rand, n, times int) {
	s := newSite(t)
	h := s.hand()
	var crew []*exec.Cmd
	for range 5 {
		crew = append(crew, h.start(t))
	}
	run := s.start(gpumux.MapInput{Task: "brief", Range: &gpumux.Range{End: int64(n)}, Ladder: []string{"cpu"}, Output: "maps/a/results.jsonl"})
	done := make(chan error, 1)
	var sum gpumux.Summary
	go func() { done <- run.Get(context.WithoutCancel(t.Context()), &sum) }()
	killed, left := 0, 0
	for ended := false; !ended; {
		select {
		case err := <-done:
			require.NoError(t, err)
			ended = true
		case <-time.After(time.Duration(500+chance.IntN(1500)) * time.Millisecond):
			who := chance.IntN(len(crew))
			if killed+left >= times {
				continue
			}
			if chance.IntN(2) == 0 {
				killed++
				require.NoError(t, crew[who].Process.Kill())
			} else {
				left++
				require.NoError(t, crew[who].Process.Signal(syscall.SIGTERM))
			}
			_ = crew[who].Wait()
			crew[who] = h.start(t)
		}
	}
	require.EqualValues(t, n, sum.Succeeded)
	for i, r := range s.results(sum) {
		require.Equal(t, strconv.Itoa(i), string(r.Value))
	}
	again, seen := 0, s.seen()
	require.Len(t, seen, n)
	for _, times := range seen {
		again += times - 1
	}
	t.Logf("%d workers killed, %d left, %d items ran again, %s", killed, left, again, sum.Elapsed)
	// A killed worker has two slots with about 200 items per second each, and stores them
	// four times a second.
	require.LessOrEqual(t, again, (killed+left)*2*200)
}

// peak is the most memory that a process has held, in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return kilobytes << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// An item of 100 MB goes in and comes out through the store, and costs the worker a few
// times its size.
func TestLong_ScaleAnItemOfAHundredMegabytes(t *testing.T) {
	s := newSite(t)
	h := s.hand()
	w := h.start(t)
	const size = 100 << 20
	large := `"` + strings.Repeat("x", size) + `"`
	source := s.source("1\n" + large + "\n" + numbers(500))
	sum, err := s.run(gpumux.MapInput{Task: "echo", Source: source, Ladder: []string{"cpu"}, Output: "maps/a/results.jsonl"})
	require.NoError(t, err)
	require.EqualValues(t, 502, sum.Succeeded)
	for r, err := range s.starter().Completed(sum).Results(t.Context(), starter.ReadOptions{}) {
		require.NoError(t, err)
		switch r.Index {
		case 1:
			require.Len(t, r.Value, size+2)
		case 2:
			require.Equal(t, "0", string(r.Value))
		}
	}
	t.Logf("peak of the worker %s", gpumux.Size(peak(t, w.Process.Pid)))
	require.Less(t, peak(t, w.Process.Pid), int64(12*size))
}

// waiting is what the chunks in flight say that they wait for.
func waiting(t *testing.T, st *starter.Starter, id string) []string {
	t.Helper()
	d, err := st.Show(t.Context(), id)
	require.NoError(t, err)
	var why []string
	for _, p := range d.Pending {
		if p.Waiting != "" {
			why = append(why, p.Waiting)
		}
	}
	return why
}

// A store that hangs holds the map up, says so, and costs nothing that had finished.
func TestScale_TroubleWithTheStore(t *testing.T) {
	t.Parallel()
	b := s3test.Start(t)
	s := newSite(t)
	s.store = b.URL("")
	s.serve(s.hand().config(2))
	st := s.starter()
	const n = 2000
	run := s.start(gpumux.MapInput{Task: "brief", Range: &gpumux.Range{End: n}, Ladder: []string{"cpu"}, Chunk: 50, Output: "maps/a/results.jsonl"})
	rig.Wait(t, func() bool { return b.Written() > 5 }, time.Minute, 10*time.Millisecond)
	release := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	defer letGo() // the server's end waits for its requests
	b.Trouble(func(r *http.Request) int {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return 0
	})
	rig.Wait(t, func() bool {
		why := waiting(t, st, run.GetID())
		return slices.ContainsFunc(why, func(text string) bool { return strings.Contains(text, "a write has taken") })
	}, time.Minute, 200*time.Millisecond, "people are told what the map waits for")
	// Longer than a heartbeat may be silent: the chunks must stay where they are.
	held, since := b.Written(), time.Now()
	rig.Wait(t, func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetID(), "")
		return err == nil && slices.ContainsFunc(d.PendingActivities, func(p *workflow.PendingActivityInfo) bool {
			return p.LastHeartbeatTime.AsTime().Sub(since) > contract.HeartbeatTimeout && p.Attempt == 1
		})
	}, time.Minute, 100*time.Millisecond)
	require.Equal(t, held, b.Written())
	require.Less(t, len(s.seen()), n, "the map must wait, not run on and hold everything in memory")
	b.Trouble(nil)
	letGo()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var sum gpumux.Summary
	require.NoError(t, run.Get(ctx, &sum))
	require.EqualValues(t, n, sum.Succeeded)
	s.results(sum)
	if lost := s.handedOn(run); lost > 0 { // the machine is too busy for heartbeats
		require.Len(t, s.seen(), n)
		for item, times := range s.seen() {
			require.LessOrEqual(t, times, 1+lost, "item %s", item)
		}
		return
	}
	s.calledOnce(n)
}

// A disk that is full or read-only holds the map up until there is room again.
func TestScale_AFullDisk(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	disk := filepath.Join(s.dir, "disk")
	require.NoError(t, os.Mkdir(disk, 0o755))
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		rig.Because(t, rig.Mount, "a small disk: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	s.store = "file://" + filepath.Join(disk, "store")
	h := s.hand()
	s.serve(h.config(2))
	st := s.starter()
	const n = 1500
	run := s.start(gpumux.MapInput{Task: "brief", Range: &gpumux.Range{End: n}, Ladder: []string{"cpu"}, Chunk: 50, Output: "maps/a/results.jsonl"})
	some := func(more int) {
		t.Helper()
		before := len(s.seen())
		rig.Wait(t, func() bool { return len(s.seen()) >= min(n, before+more) }, time.Minute, 10*time.Millisecond)
	}
	says := func(text string) {
		t.Helper()
		rig.Wait(t, func() bool {
			return slices.ContainsFunc(waiting(t, st, run.GetID()), func(why string) bool { return strings.Contains(why, text) })
		}, time.Minute, 100*time.Millisecond, text)
	}
	some(100)
	ballast := filepath.Join(disk, "ballast")
	f, err := os.Create(ballast)
	require.NoError(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	_ = f.Close()
	says("no space left on device")
	require.NoError(t, os.Remove(ballast))
	some(200)
	require.Eventually(t, func() bool {
		return unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") == nil // not while a file is being written
	}, time.Minute, time.Millisecond)
	says("read-only file system")
	require.NoError(t, unix.Mount("", disk, "", unix.MS_REMOUNT, "size=16m"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var sum gpumux.Summary
	require.NoError(t, run.Get(ctx, &sum))
	require.EqualValues(t, n, sum.Succeeded)
	s.results(sum)
	s.calledOnce(n)
}
