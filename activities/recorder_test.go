package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/store"
	"github.com/gpumux/gpumux/store/s3test"
)

// serverStore is a store on a server. The test can make the server fail.
func serverStore(t *testing.T) (*s3test.Server, *store.Store) {
	server := s3test.New(t)
	s, err := store.Open(t.Context(), server.URL(""), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return server, s
}

func join(t *testing.T, rs *Recorders) *stream {
	s, _, err := rs.join("p", "c")
	require.NoError(t, err)
	return s
}

// Each flush waits until its own results are stored.
func TestRecorder_ChunksOfOneMapShareObjects(t *testing.T) {
	server, s := serverStore(t)
	rs := NewRecorders(s)
	const chunks, each = 12, 50
	var wait sync.WaitGroup
	streams := make([]*stream, chunks)
	for k := range streams {
		streams[k] = join(t, rs)
	}
	for k, stream := range streams {
		wait.Go(func() {
			for i := range int64(each) {
				stream.put(value(int64(k)*each + i))
			}
			if err := stream.flush(t.Context()); err != nil {
				t.Error(err)
			}
			runs, err := s.Runs(t.Context(), "p")
			if err != nil || runs.Union(gpumux.Runs{span(int64(k)*each, int64(k+1)*each)}).Len() != runs.Len() {
				t.Error("flush came back before its results were stored", k, runs, err)
			}
			stream.leave()
		})
	}
	wait.Wait()
	require.Len(t, server.Keys(), 1)
	other, _, err := rs.join("p", "another claim")
	require.NoError(t, err)
	other.put(value(0))
	require.NoError(t, other.flush(t.Context()))
	other.leave()
	require.Len(t, server.Keys(), 2, "another claim is another map")
}

// While a write hangs, chunks can begin, put, heartbeat and leave. A chunk that leaves then does not keep any bytes.
func TestRecorder_AHungWriteHoldsNobodyUp(t *testing.T) {
	server, s := serverStore(t)
	hung, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	server.Trouble(func(*http.Request) int {
		once.Do(func() { close(hung) })
		<-goOn
		return 0
	})
	rs := NewRecorders(s)
	first := join(t, rs)
	first.release()
	first.put(value(0))
	<-hung
	second := join(t, rs)
	second.put(value(1))
	require.Empty(t, second.waitingFor())
	first.put(value(2)) // is given up
	first.leave()
	second.put(value(3))
	close(goOn)
	require.NoError(t, second.flush(t.Context()))
	r := second.r
	r.mu.Lock()
	require.Zero(t, r.waiting)
	require.Zero(t, r.taken)
	r.mu.Unlock()
	second.leave()
	runs, err := s.Runs(t.Context(), "p")
	require.NoError(t, err)
	require.Equal(t, gpumux.Runs{span(0, 2), span(3, 4)}, runs)
}

func TestRecorder_LeavingMakesRoom(t *testing.T) {
	_, s := serverStore(t)
	rs := NewRecorders(s)
	full, waiter := join(t, rs), join(t, rs)
	defer waiter.leave()
	full.put(gpumux.Result{Index: 0, Value: json.RawMessage(`"` + strings.Repeat("x", unstored) + `"`)})
	require.Nil(t, waiter.room(), "few results may yet travel inline")
	waiter.put(gpumux.Result{Index: 1, Value: json.RawMessage(`"` + strings.Repeat("x", inlineResults) + `"`)})
	less := waiter.room()
	require.NotNil(t, less)
	full.leave()
	select {
	case <-less:
	case <-time.After(time.Minute):
		t.Fatal("it waits for ever")
	}
	require.Nil(t, waiter.room())
}

// While the store fails, the stream says why. Later the store gets everything.
func TestRecorder_RecoversFromErrors(t *testing.T) {
	server, s := serverStore(t)
	server.Trouble(func(*http.Request) int { return http.StatusForbidden })
	rs := NewRecorders(s)
	stream := join(t, rs)
	defer stream.leave()
	stream.release()
	stream.put(value(0))
	require.Eventually(t, func() bool { return strings.HasPrefix(stream.waitingFor(), "results wait for the store: ") }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stream.put(value(1))
	quitter := join(t, rs)
	quitter.put(value(2))
	require.ErrorContains(t, quitter.flush(ctx), "store what has finished: ")
	quitter.leave()
	server.Trouble(nil)
	require.NoError(t, stream.flush(t.Context()))
	require.Empty(t, stream.waitingFor())
	runs, err := s.Runs(t.Context(), "p")
	require.NoError(t, err)
	require.GreaterOrEqual(t, runs.Len(), int64(2))
	require.Equal(t, span(0, 2), span(runs[0].Start, min(2, runs[0].End)))
}

// dying fails after some items, as if the worker were lost.
type dying struct {
	after int
	ran   []int64
}

func (d *dying) Run(_ context.Context, call Call) error {
	count := 0
	for item, err := range call.Items {
		if err != nil {
			return err
		}
		if count++; d.after > 0 && count > d.after {
			return &gpumux.Fault{Kind: gpumux.DeviceLost, Op: "run", Message: "gone"}
		}
		d.ran = append(d.ran, item.Index)
		call.Done(gpumux.Result{Index: item.Index, Value: item.Value})
	}
	return nil
}

// The next attempt, on another worker, finds what the first one stored and runs the rest. If the part is damaged, it runs
// everything.
func TestRunChunk_TheNextAttemptFindsWhatWasStored(t *testing.T) {
	work := contract.Work{Runs: gpumux.Runs{span(3, 6), span(100, 104), span(900, 901)}}
	for _, damaged := range []bool{false, true} {
		t.Run(fmt.Sprint(damaged), func(t *testing.T) {
			runner := &dying{after: 5}
			l := newLab(t, runner)
			l.env.RegisterActivityWithOptions(l.pool.RunChunk, activity.RegisterOptions{Name: "chunk"})
			chunk := contract.Chunk{Range: &gpumux.Range{End: 1000}, Work: work, Parts: "m/parts"}
			_, err := l.env.ExecuteActivity("chunk", chunk)
			require.ErrorContains(t, err, "gone")
			runs, err := l.store.Runs(t.Context(), "m/parts")
			require.NoError(t, err)
			require.Equal(t, gpumux.Runs{span(3, 6), span(100, 102)}, runs)
			var written store.Written
			for _, r := range l.pool.Recorders.open {
				written = r.to.At()
			}
			if damaged {
				l.put(fmt.Sprintf("m/parts/%s.%06d.jsonl", written.Writer, written.Number))
			}
			l.pool.Recorders = NewRecorders(l.store)
			l.env.SetHeartbeatDetails(memo{Written: []store.Written{written}})
			runner.after, runner.ran = 0, nil
			encoded, err := l.env.ExecuteActivity("chunk", chunk)
			require.NoError(t, err)
			var result contract.ChunkResult
			require.NoError(t, encoded.Get(&result))
			want := []int64{102, 103, 900}
			if damaged {
				want = []int64{3, 4, 5, 100, 101, 102, 103, 900}
			}
			require.Equal(t, want, runner.ran)
			require.EqualValues(t, len(want), result.Ran)
			require.EqualValues(t, 8, result.Covered)
			require.EqualValues(t, 8, result.Succeeded)
			runs, err = l.store.Runs(t.Context(), "m/parts")
			require.NoError(t, err)
			require.Equal(t, work.Runs, runs)
		})
	}
}

func (l *lab) put(key string) {
	w, err := l.store.Create(l.t.Context(), key)
	require.NoError(l.t, err)
	defer w.Abort()
	_, err = w.Write([]byte("[]"))
	require.NoError(l.t, err)
	require.NoError(l.t, w.Close())
}
