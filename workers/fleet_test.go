package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workers/config"
)

// idler is a slot without a process, whose items wait for as long as the call's argument
// says, and are noted in runs.
type idler struct {
	*gputest.Slot
	running atomic.Pointer[slot.Running]
	runs    *os.File
}

// Stats is slot.Slot's.
func (s *idler) Stats() slot.Stats { return slot.Stats{Running: s.running.Load()} }

// State is slot.Slot's.
func (s *idler) State() slot.State {
	if s.running.Load() != nil {
		return slot.Busy
	}
	return s.Slot.State()
}

func (s *idler) do(ctx context.Context, _ launch.Task, call slot.Call) error {
	var arg struct{ Seconds float64 }
	if err := json.Unmarshal(call.Arg, &arg); err != nil {
		return err
	}
	if err := call.Work.Meet(calls.Process{Edition: call.Edition}); err != nil {
		return err
	}
	defer s.running.Store(nil)
	for item, err := range call.Work.Items() {
		if err != nil {
			return err
		}
		began := time.Now()
		s.running.Store(&slot.Running{Map: call.Map, Index: item.Index, Began: began})
		select {
		case <-time.After(time.Duration(arg.Seconds * float64(time.Second))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		// Before the result counts: a run whose result is lost is seen, too.
		if _, err := fmt.Fprintln(s.runs, item.Index, began.UnixMilli(), time.Now().UnixMilli()); err != nil {
			return err
		}
		call.Work.Done(calls.Done{Result: gpumux.Result{Index: item.Index, Value: item.Value}, Busy: time.Since(began)})
	}
	return nil
}

// fleetVariable has, as JSON, the part of a fleet that TestFleet is.
const fleetVariable = "GPUMUX_FLEET_PART"

// Some of the workers of a simulated fleet, each complete but for the processes of its
// slots, until SIGTERM. The test binary is a program of test/clustercheck.
func TestFleet(t *testing.T) {
	part := os.Getenv(fleetVariable)
	if part == "" {
		rig.Because(t, rig.Cluster, "make cluster-check starts it")
	}
	var o struct {
		First, Workers, Slots int
		Contact               gpumux.Duration
		// Folder gets ready-FIRST once all workers serve, and runs-FIRST.
		Folder, Store string
	}
	require.NoError(t, json.Unmarshal([]byte(part), &o))
	asked, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	runs, err := os.Create(filepath.Join(o.Folder, fmt.Sprint("runs-", o.First)))
	require.NoError(t, err)
	inventory := onlyCPU(t)
	var starting errgroup.Group
	starting.SetLimit(4)
	all := make([]*Worker, o.Workers)
	for i := range all {
		starting.Go(func() error {
			w, err := New(config.Config{
				Dir: o.Folder, Store: o.Store, Contact: o.Contact,
				Pools: []config.Pool{{Name: "cpu", Devices: gpu.Selection{"cpu"}, Slots: config.Slots(o.Slots), Memory: 1 << 20}},
				Tasks: map[string]config.Task{"hold": {Command: []string{"true"}}},
			}, Options{Inventory: inventory, Runtime: filepath.Join(o.Folder, "runtime")})
			if err != nil {
				return err
			}
			all[i] = w
			w.host = fmt.Sprintf("host%04d", o.First+i)
			w.identity = fmt.Sprintf("%s/%d", w.host, os.Getpid())
			if err := w.Start(asked); err != nil {
				return err
			}
			w.pools[0].Each(func(h *pool.Seat, _ string) {
				s := &idler{Slot: gputest.NewSlot(), runs: runs}
				s.Do = s.do
				h.Slot = s
			})
			return nil
		})
	}
	require.NoError(t, starting.Wait())
	require.NoError(t, os.WriteFile(filepath.Join(o.Folder, fmt.Sprint("ready-", o.First)), nil, 0o644))
	<-asked.Done()
	var stopping sync.WaitGroup
	for _, w := range all {
		stopping.Go(func() { _ = w.Stop(context.Background()) })
	}
	stopping.Wait()
}
