package workers

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workers/config"
)

func localWorker(t *testing.T, address string) (*Worker, string) {
	dir := site(t)
	c := config.Config{
		Temporal: config.Temporal{Address: address}, Dir: dir, Store: "file://" + dir + "/store",
		Pools: []config.Pool{{Name: "cpu", Devices: gpu.Selection{"cpu"}, Slots: 2, Memory: 1 << 30}},
		Tasks: map[string]config.Task{"*": {PythonDir: "tasks"}},
	}
	w, err := New(c, Options{Inventory: onlyCPU(t), Runtime: filepath.Join(dir, "runtime"), Version: "1.2.3"})
	require.NoError(t, err)
	return w, dir
}

func TestNew_ListsMistakesBeforeAnythingStarts(t *testing.T) {
	dir := site(t)
	_, err := New(config.Config{
		Dir: dir, Store: "file://" + dir + "/store", Pools: []config.Pool{{Name: "CPU", Devices: gpu.Selection{"cpu"}, Memory: 1 << 50}},
	}, Options{Inventory: onlyCPU(t)})
	var config *config.Error
	require.ErrorAs(t, err, &config)
	require.Len(t, config.Problems, 2)
	require.NoDirExists(t, filepath.Join(dir, "store"))
}

func TestWorker_Describe(t *testing.T) {
	w, dir := localWorker(t, "")
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, contract.WorkerInfo{
		Identity: w.identity, Modes: map[string]gpumux.Mode{},
		Version: "1.2.3", Host: host, Store: "file://" + dir + "/store", Tasks: []string{"score:score", "sweep:fit"},
		Pools: []contract.PoolInfo{{Name: "cpu", Slots: 2, Memory: 1 << 30, Mode: gpumux.ModePersistent, Devices: []string{"CPU"}}},
	}, w.Describe())
	require.NoError(t, w.Stop(t.Context()), "before Start")
	require.NoError(t, w.Stop(t.Context()))
	require.ErrorContains(t, w.Start(t.Context()), "make a new one")
}

func TestWorker_NoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	w, _ := localWorker(t, address)
	ctx, cancel := context.WithTimeout(t.Context(), 10*dialLimit)
	defer cancel()
	err = w.Start(ctx)
	require.NoError(t, ctx.Err(), "it gives up by itself")
	require.ErrorContains(t, err, "reach Temporal at "+address+" (namespace default): ")
	require.ErrorContains(t, err, "start one with gpumux dev")
	require.NoError(t, w.Stop(t.Context()))
}

func TestWorker_StopEndsAStartThatWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // never answers
	require.NoError(t, err)
	defer l.Close()
	w, _ := localWorker(t, l.Addr().String())
	started := make(chan error, 1)
	go func() { started <- w.Start(context.Background()) }()
	conn, err := l.Accept()
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, w.Stop(t.Context()))
	require.ErrorContains(t, <-started, context.Canceled.Error(), "it does not wait until it gives up by itself")
}

// A driver that does not answer keeps no worker from ending.
func TestWorker_StopGivesUpADriverThatHangs(t *testing.T) {
	w, _ := localWorker(t, "")
	w.o.Grace, w.slack = time.Millisecond, 20*time.Millisecond
	hangs := make(chan struct{})
	defer close(hangs)
	w.guarding = func() {}
	w.guards.Go(func() { <-hangs })
	stopped := make(chan error, 1)
	go func() { stopped <- w.Stop(t.Context()) }()
	select {
	case err := <-stopped:
		require.ErrorContains(t, err, "a driver that is asked about devices has not answered for 21ms: context deadline exceeded; look at gpumux gpus")
	case <-time.After(time.Minute):
		t.Fatal("Stop waits for the driver")
	}
}

func TestWorker_StoreThatCanNotBeUsed(t *testing.T) {
	dir := site(t)
	w, err := New(config.Config{
		Dir: dir, Store: "file://" + dir + "/plain.txt", Pools: []config.Pool{{Name: "cpu", Devices: gpu.Selection{"cpu"}}},
	}, Options{Inventory: onlyCPU(t), Runtime: dir})
	require.NoError(t, err)
	require.ErrorContains(t, w.Start(t.Context()), dir+"/plain.txt")
}
