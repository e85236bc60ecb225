package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/proxy"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

const cutoffPy = `
import os, time

def beat(i):
    # an effect every 50 ms for as long as the item runs, with the time
    for n in range(int(os.environ["BEATS"])):
        with open(os.environ["CALLS"], "a") as f: f.write(f"{i} {os.getpid()} {time.monotonic()}\n")
        time.sleep(0.05)
    return i
`

// link is a connection to the server that can lose a direction: what is sent then waits,
// as for a network that comes back. It can also lose the server's history service: then
// the frontend answers at once that it is away.
type link struct {
	listener net.Listener
	mu       sync.Mutex
	moved    *sync.Cond
	cut      map[string]bool
	// metrics is where the worker behind the link serves its metrics.
	metrics string
	open    []net.Conn
}

// lost reports whether a direction is cut.
func (l *link) lost(direction string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut[direction]
}

// frontend passes on what the server is asked while its history service is there, and
// otherwise what needs none. It returns its address.
func (l *link) frontend(t testing.TB, server string) string {
	return frontend(t, server, func(ctx context.Context, req any, call *grpc.UnaryServerInfo, pass grpc.UnaryHandler) (any, error) {
		needed := regexp.MustCompile(`/(Respond|Record|DescribeWorkflowExecution)`).MatchString(call.FullMethod)
		if needed && l.lost("history") {
			return nil, status.Error(codes.Unavailable, "shard status unknown")
		}
		return pass(ctx, req)
	})
}

// frontend passes on what before lets through. It returns its address.
func frontend(t testing.TB, server string, before grpc.UnaryServerInterceptor) string {
	conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	passed, err := proxy.NewWorkflowServiceProxyServer(proxy.WorkflowServiceProxyOptions{Client: workflowservice.NewWorkflowServiceClient(conn)})
	require.NoError(t, err)
	pings := keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true} // as Temporal's frontends
	front := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(pings), grpc.UnaryInterceptor(func(ctx context.Context, req any, call *grpc.UnaryServerInfo, pass grpc.UnaryHandler) (any, error) {
		sent, _ := metadata.FromIncomingContext(ctx)
		return before(metadata.NewOutgoingContext(ctx, sent), req, call, pass)
	}))
	workflowservice.RegisterWorkflowServiceServer(front, passed)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = front.Serve(listener) })
	t.Cleanup(func() {
		front.Stop()
		conn.Close()
		serving.Wait()
	})
	return listener.Addr().String()
}

func newLink(t testing.TB, server string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{listener: listener, cut: map[string]bool{}}
	l.moved = sync.NewCond(&l.mu)
	server = l.frontend(t, server)
	var all sync.WaitGroup
	pass := func(direction string, to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := from.Read(buffer)
			l.mu.Lock()
			for l.cut[direction] {
				l.moved.Wait()
			}
			l.mu.Unlock()
			if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	all.Go(func() {
		for {
			worker, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				worker.Close()
				continue
			}
			l.mu.Lock()
			l.open = append(l.open, worker, upstream)
			l.mu.Unlock()
			all.Go(func() { pass("to the server", upstream, worker) })
			all.Go(func() { pass("to the worker", worker, upstream) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		l.lose()
		l.mu.Lock()
		for _, each := range l.open {
			each.Close()
		}
		l.mu.Unlock()
		all.Wait()
	})
	return l
}

// lose cuts these directions and no others.
func (l *link) lose(directions ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.cut)
	for _, each := range directions {
		l.cut[each] = true
	}
	l.moved.Broadcast()
}

// behind starts a worker that reaches its server through a link; its items last so many
// beats, and run on for contact without an answer.
func (h *host) behind(beats int, contact time.Duration) (*link, *program) {
	h.t.Helper()
	h.write("cutoff.py", cutoffPy)
	metrics := programtest.FreePort(h.t)
	h.write("worker.yaml", fmt.Sprintf("store: file://%s\npools: [{name: cpu, devices: cpu, slots: 2}]\ncontact: %s\nmetrics: \":%s\"\n"+
		"tasks: {beat: {python: \"cutoff.py:beat\", env: {CALLS: %q, BEATS: \"%d\"}}}\n", h.path("store"), contact, metrics, h.path("calls"), beats))
	l := newLink(h.t, h.address)
	l.metrics = metrics
	direct := h.env
	h.env = append(slices.Clone(direct), "TEMPORAL_ADDRESS="+l.listener.Addr().String())
	defer func() { h.env = direct }()
	return l, h.worker()
}

// A worker that the network cuts off goes on running; so does the one that gets its
// chunks. The effects of no item are from both at once, and each result counts once.
func TestCutOff_NoItemHasTwoAttemptsAtOnce(t *testing.T) {
	t.Parallel()
	const beats = 280 // 14 s: an item outlasts the 11 s after which its chunk is handed on
	for name, directions := range map[string][]string{
		"Both": {"to the server", "to the worker"}, "History": {"history"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			l, first := h.behind(beats, contract.MinContact)
			running := h.begin("map", "beat", "--range", "0:2", "--pool", "cpu", "--option", "chunk=1", "--out", "r.jsonl")
			rig.Wait(t, func() bool { return len(h.beats()) == 2 }, 2*time.Minute, 5*time.Millisecond)
			lost := h.beats()
			l.lose(directions...)
			h.write("worker.yaml", strings.ReplaceAll(h.file("worker.yaml"), "metrics: ", "#"))
			second := h.worker()
			// Every item that the first had begun is begun again by the second, while the first
			// still runs.
			rig.Wait(t, func() bool {
				now := h.beats()
				for item := range lost {
					if len(now[item]) < 2 {
						return false
					}
				}
				return true
			}, 2*time.Minute, 5*time.Millisecond)
			require.True(t, parent(first.Process.Pid) > 0, "the worker that was cut off lives")
			for item := range lost {
				for _, each := range lost[item] {
					require.True(t, gone(each.pid), "task process %d outlived the worker's time", each.pid)
				}
			}
			l.lose()
			require.Equal(t, 0, running.code(), running.stderr.String())
			h.complete("r.jsonl", 2)
			for item, attempts := range h.beats() {
				for i := 1; i < len(attempts); i++ {
					require.Less(t, attempts[i-1].last, attempts[i].first, "item %s had two attempts at once: %v", item, attempts)
				}
				require.Equal(t, beats, attempts[len(attempts)-1].count, "item %s", item)
			}
			require.Equal(t, 1, strings.Count(first.stderr.String(), "what ran on it is given up"), first.stderr.String())
			require.NotContains(t, first.stderr.String(), "a call failed", "nobody is to blame")
			for _, each := range []*program{first, second} {
				stop(t, each)
			}
		})
	}
}

// A server that answers nothing for some seconds costs nothing: what runs goes on.
func TestCutOff_AShortSilenceCostsNothing(t *testing.T) {
	t.Parallel()
	const beats = 160 // 8 s
	h := newHost(t)
	l, _ := h.behind(beats, 4*time.Second) // with a heartbeat after 6 s
	running := h.begin("map", "beat", "--range", "0:2", "--pool", "cpu", "--option", "chunk=1", "--out", "r.jsonl")
	count := func() (n int) {
		for _, attempts := range h.beats() {
			n += attempts[0].count
		}
		return n
	}
	rig.Wait(t, func() bool { return count() > 200 }, 2*time.Minute, 5*time.Millisecond, "5 s of two items")
	l.lose("to the worker")
	before := count()
	rig.Wait(t, func() bool { return count() > before+100 }, 2*time.Minute, 5*time.Millisecond, "2.5 s of two items")
	l.lose()
	require.Equal(t, 0, running.code(), running.stderr.String())
	for item, attempts := range h.beats() {
		require.Len(t, attempts, 1, "item %s", item)
		require.Equal(t, beats, attempts[0].count)
	}
}

// Items that end while the history service is away count when it is back, and none runs
// twice. Their results travel in the history, and nothing of them is stored.
func TestCutOff_WhatEndsWithoutHistoryCounts(t *testing.T) {
	t.Parallel()
	const beats = 120 // 6 s: by their end the worker knows
	h := newHost(t)
	l, _ := h.behind(beats, 20*time.Second)
	running := h.begin("map", "beat", "--range", "0:4", "--pool", "cpu", "--option", "chunk=1", "--out", "r.jsonl")
	rig.Wait(t, func() bool { return len(h.beats()) == 2 }, 2*time.Minute, 5*time.Millisecond)
	l.lose("history")
	rig.Wait(t, func() bool { return l.health() == http.StatusServiceUnavailable }, time.Minute, 100*time.Millisecond, "it can do no work")
	rig.Wait(t, func() bool {
		ended := 0
		for _, attempts := range h.beats() {
			ended += attempts[0].count / beats
		}
		return ended >= 2
	}, time.Minute, 100*time.Millisecond, "both run to their end")
	l.lose()
	rig.Wait(t, func() bool { return l.health() == http.StatusOK }, time.Minute, 100*time.Millisecond)
	require.Equal(t, 0, running.code(), running.stderr.String())
	for item, attempts := range h.beats() {
		require.Len(t, attempts, 1, "item %s", item)
	}
}

// health is what the worker behind the link answers to whoever asks whether it can work.
func (l *link) health() int {
	answer, err := http.Get("http://127.0.0.1:" + l.metrics + "/healthz")
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// attempt is one process's effects of an item.
type attempt struct {
	pid         int
	first, last float64
	count       int
}

// beats are the attempts of each item that has begun, in the order in which they did.
func (h *host) beats() map[string][]attempt {
	h.t.Helper()
	all := map[string][]attempt{}
	for line := range strings.Lines(h.file("calls")) {
		words := strings.Fields(line)
		if len(words) != 3 || !strings.HasSuffix(line, "\n") {
			continue
		}
		pid, err := strconv.Atoi(words[1])
		require.NoError(h.t, err)
		at, err := strconv.ParseFloat(words[2], 64)
		require.NoError(h.t, err)
		list := all[words[0]]
		i := slices.IndexFunc(list, func(a attempt) bool { return a.pid == pid })
		if i < 0 {
			list = append(list, attempt{pid: pid, first: at})
			i = len(list) - 1
		}
		list[i].last, list[i].count = at, list[i].count+1
		all[words[0]] = list
	}
	return all
}
