package record

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/s3test"
	"github.com/gpumux/gpumux/internal/test/storetest"
)

// serverStore is a store on a server. The test can make the server fail.
func serverStore(t *testing.T) (*s3test.Server, *store.Store) {
	server := s3test.New(t)
	s, err := store.Open(t.Context(), server.URL(""))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return server, s
}

func join(t *testing.T, rs *Recorders) *Stream {
	s, _, err := rs.Join("p", "c", false)
	require.NoError(t, err)
	return s
}

// Each flush waits until its own results are stored.
func TestRecorder_ChunksOfOneMapShareObjects(t *testing.T) {
	server, s := serverStore(t)
	rs := New(s)
	const chunks, each = 12, 50
	var wait sync.WaitGroup
	streams := make([]*Stream, chunks)
	for k := range streams {
		streams[k] = join(t, rs)
	}
	for k, stream := range streams {
		wait.Go(func() {
			for i := range int64(each) {
				stream.Put(value(int64(k)*each + i))
			}
			if err := stream.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			runs := storetest.Runs(t, s, "p")
			if runs.Union(contract.Runs{span(int64(k)*each, int64(k+1)*each)}).Len() != runs.Len() {
				t.Error("flush came back before its results were stored", k, runs)
			}
			stream.Leave()
		})
	}
	wait.Wait()
	require.Len(t, server.Keys(), 1)
	other, _, err := rs.Join("p", "another claim", false)
	require.NoError(t, err)
	other.Put(value(0))
	require.NoError(t, other.Flush(t.Context()))
	other.Leave()
	require.Len(t, server.Keys(), 2, "another claim is another map")
}

// While a write hangs, chunks can begin, put, heartbeat and leave. A chunk that leaves
// then does not keep any bytes.
func TestRecorder_AHungWriteHoldsNobodyUp(t *testing.T) {
	server, s := serverStore(t)
	hung, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	server.Trouble(func(*http.Request) int {
		once.Do(func() { close(hung) })
		<-goOn
		return 0
	})
	rs := New(s)
	first := join(t, rs)
	first.Put(value(0))
	<-hung
	second := join(t, rs)
	second.Put(value(1))
	require.Empty(t, second.WaitingFor())
	first.Put(value(2)) // is given up
	first.Leave()
	second.Put(value(3))
	close(goOn)
	require.NoError(t, second.Flush(t.Context()))
	r := second.r
	r.mu.Lock()
	require.Zero(t, r.waiting)
	require.Zero(t, r.taken)
	r.mu.Unlock()
	second.Leave()
	runs := storetest.Runs(t, s, "p")
	require.Equal(t, contract.Runs{span(0, 2), span(3, 4)}, runs)
}

// While items run for long, a worker's recorder looks for results at its pace: one that
// never rests never lets the bubble's clock move.
func TestRecorder_RestsWhileNothingComes(t *testing.T) {
	s, err := store.Open(t.Context(), "file://"+t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	defer time.AfterFunc(time.Minute, func() { panic("the recorder spins") }).Stop()
	synctest.Test(t, func(t *testing.T) {
		stream := join(t, New(s))
		time.Sleep(time.Hour)
		stream.Put(value(0))
		time.Sleep(2 * diskEvery)
		synctest.Wait()
		stream.r.mu.Lock()
		require.Zero(t, stream.r.waiting, "a result is stored at the next look")
		stream.r.mu.Unlock()
		stream.Leave()
	})
}

func TestRecorder_LeavingMakesRoom(t *testing.T) {
	_, s := serverStore(t)
	rs := New(s)
	full, waiter := join(t, rs), join(t, rs)
	defer waiter.Leave()
	full.Put(gpumux.Result{Index: 0, Value: json.RawMessage(`"` + strings.Repeat("x", Unstored) + `"`)})
	require.NoError(t, waiter.AwaitRoom(t.Context()), "its results may yet travel inline")
	waiter.Put(value(1))
	waited := make(chan error)
	go func() { waited <- waiter.AwaitRoom(t.Context()) }()
	select {
	case <-waited:
		t.Fatal("there is no room")
	case <-time.After(50 * time.Millisecond):
	}
	full.Leave()
	select {
	case err := <-waited:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("it waits for ever")
	}
}

// While the store fails, the stream says why. Later the store gets everything.
func TestRecorder_RecoversFromErrors(t *testing.T) {
	server, s := serverStore(t)
	server.Trouble(func(*http.Request) int { return http.StatusForbidden })
	rs := New(s)
	var failed atomic.Int64
	rs.Failed = func() { failed.Add(1) }
	stream := join(t, rs)
	defer stream.Leave()
	stream.Put(value(0))
	require.Eventually(t, func() bool { return strings.HasPrefix(stream.WaitingFor(), "results wait for the store: ") }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stream.Put(value(1))
	quitter := join(t, rs)
	quitter.Put(value(2))
	require.ErrorContains(t, quitter.Flush(ctx), "store what has finished: ")
	quitter.Leave()
	require.Positive(t, failed.Load())
	server.Trouble(nil)
	require.NoError(t, stream.Flush(t.Context()))
	require.Empty(t, stream.WaitingFor())
	stream.Put(value(3))
	require.NoError(t, stream.Flush(t.Context()), "a second time")
	runs := storetest.Runs(t, s, "p")
	require.GreaterOrEqual(t, runs.Len(), int64(2))
	require.Equal(t, span(0, 2), span(runs[0].Start, min(2, runs[0].End)))
}

func value(index int64) gpumux.Result {
	return gpumux.Result{Index: index, Value: json.RawMessage("1")}
}

func span(start, end int64) contract.Span { return contract.Span{Start: start, End: end} }
