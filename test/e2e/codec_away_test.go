package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/test/codectest"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workflows"
)

// remote is a way to a codec server, on which the next requests can go wrong.
type remote struct {
	converter.PayloadCodec
	transport http.Transport
	closed    string // an address that nobody listens on

	mu   sync.Mutex
	next []func(*http.Request) (*http.Response, error)
}

// codecServer serves a codec and returns a function that makes ways to it.
func codecServer(t *testing.T) func() *remote {
	t.Helper()
	server := httptest.NewServer(converter.NewPayloadCodecHTTPHandler(codectest.Flipped{}))
	t.Cleanup(server.Close)
	return func() *remote {
		r := &remote{closed: "127.0.0.1:" + programtest.FreePort(t)}
		r.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		}
		r.PayloadCodec = converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{Endpoint: server.URL, Client: http.Client{Transport: r}})
		return r
	}
}

// RoundTrip implements http.RoundTripper.
func (r *remote) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	wrong := r.transport.RoundTrip
	if len(r.next) > 0 {
		wrong, r.next = r.next[0], r.next[1:]
	}
	r.mu.Unlock()
	return wrong(request)
}

// fail makes the next requests go wrong.
func (r *remote) fail(requests int, how string) {
	each := map[string]func(*http.Request) (*http.Response, error){
		"503": func(request *http.Request) (*http.Response, error) {
			answer := httptest.NewRecorder()
			http.Error(answer, "out of order", http.StatusServiceUnavailable)
			return answer.Result(), nil
		},
		"away": func(request *http.Request) (*http.Response, error) {
			elsewhere := request.Clone(request.Context())
			elsewhere.URL.Host = r.closed
			return r.transport.RoundTrip(elsewhere)
		},
		"slow": func(request *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			return r.transport.RoundTrip(request)
		},
	}[how]
	r.mu.Lock()
	defer r.mu.Unlock()
	for range requests {
		r.next = append(r.next, each)
	}
}

// left is how many requests are still to go wrong.
func (r *remote) left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.next)
}

const steps = 24

// stepping are the items of a map that takes a while.
func stepping() []float64 {
	items := make([]float64, steps)
	for i := range items {
		items[i] = 0.1 + float64(i)/10000
	}
	return items
}

// viaMap and viaSource are workflows of a service.
func viaMap(ctx workflow.Context, items []float64) (int, error) {
	mapped, err := workflows.Map[float64, int](ctx, gpumux.MapInput{Task: "slow", Ladder: []string{"cpu"}}, items)
	if err != nil {
		return 0, err
	}
	values, err := mapped.Values()
	return len(values), err
}

func viaSource(ctx workflow.Context, source string) (int, error) {
	sum, err := workflows.MapSource(ctx, gpumux.MapInput{Task: "slow", Ladder: []string{"cpu"}, Source: source})
	if err != nil {
		return 0, err
	}
	page, _, err := workflows.Page[int](ctx, sum.Output, 0, 0)
	return len(page), err
}

// outage is a map of a service's workflow, with a way to a codec server for
// the workers, one for the service and one for who starts the workflow.
type outage struct {
	*site
	workers, service, caller *remote
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	s := newSite(t)
	open := codecServer(t)
	return &outage{s, open(), open(), open()}
}

// dial connects with a data converter; the default is that of codec.Apply.
func (o *outage) dial(c converter.PayloadCodec, data converter.DataConverter) client.Client {
	options := client.Options{Namespace: o.namespace, DataConverter: data}
	if data == nil {
		codec.Apply(&options, c)
	}
	return dial(o.t, options)
}

// begin starts a workflow that runs steps, and returns when the first one runs.
func (o *outage) begin(program client.Client, opts workers.Options, f any) client.WorkflowRun {
	t := o.t
	t.Helper()
	opts.Codec = o.workers
	o.apart(o.config("cpu", 2), opts)
	service(t, program, map[string]any{"via": f})
	var arg any = stepping()
	if reflect.TypeOf(f) == reflect.TypeOf(viaSource) {
		var lines strings.Builder
		for _, item := range stepping() {
			fmt.Fprintln(&lines, item)
		}
		arg = o.source(lines.String())
	}
	run, err := o.dial(o.caller, nil).ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "outage", TaskQueue: "service"}, "via", arg)
	require.NoError(t, err)
	rig.Wait(t, func() bool { return len(o.seen()) > 0 }, time.Minute, 5*time.Millisecond, "items run")
	return run
}

// end waits for the workflow, which has a result of each item.
func (o *outage) end(run client.WorkflowRun) {
	o.t.Helper()
	var got int
	ctx, cancel := context.WithTimeout(o.t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(o.t, run.Get(ctx, &got))
	require.Equal(o.t, steps, got)
	require.Zero(o.t, o.workers.left())
	require.Zero(o.t, o.service.left())
}

// Maps of every kind outlast a codec server that fails, is slow or is away:
// that of the workers, and that of the service whose workflow maps.
func TestCodecServer_Outages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f        any
		how      string
		requests int
	}{
		"a map while it fails":      {viaMap, "503", 6},
		"a source while it is away": {viaSource, "away", 6},
		"a map while it is slow":    {viaMap, "slow", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutage(t)
			run := o.begin(o.dial(o.service, nil), workers.Options{}, c.f)
			o.workers.fail(c.requests, c.how)
			o.service.fail(3, c.how)
			o.end(run)
			o.calledOnce(steps)
		})
	}
	// An error in a workflow's input fails that workflow then, but none of what a map reads.
	t.Run("the codec is in the SDK's own converter", func(t *testing.T) {
		t.Parallel()
		o := newOutage(t)
		run := o.begin(o.dial(nil, converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), o.service)), workers.Options{}, viaMap)
		o.service.fail(1, "503")
		o.end(run)
		o.calledOnce(steps)
	})
	// A chunk whose results cannot be encoded is tried again.
	t.Run("a program gives the worker its client", func(t *testing.T) {
		t.Parallel()
		o := newOutage(t)
		run := o.begin(o.dial(o.service, nil), workers.Options{Client: o.dial(o.workers, nil)}, viaMap)
		o.workers.fail(6, "503")
		o.end(run)
	})
}
