package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	nexuspb "go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/test/codectest"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/devservertest"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workflows"
)

// neighbour is another team: a namespace of its own with a worker, which calls an
// endpoint.
type neighbour struct {
	client   client.Client
	endpoint string
}

func newNeighbour(t *testing.T, endpoint string, c converter.PayloadCodec) *neighbour {
	t.Helper()
	o := client.Options{Namespace: devservertest.Namespace(t)}
	codec.Apply(&o, c)
	n := &neighbour{dial(t, o), endpoint}
	w := worker.New(n.client, "team", worker.Options{Interceptors: []interceptor.WorkerInterceptor{&naming{}}})
	w.RegisterWorkflowWithOptions(n.ask, workflow.RegisterOptions{Name: "ask"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return n
}

// endpoint makes a Nexus endpoint to the site and returns its name.
func endpoint(t *testing.T, s *site) string {
	t.Helper()
	name := strings.ReplaceAll(s.namespace, "_", "-")
	_, err := s.client.OperatorService().CreateNexusEndpoint(t.Context(), &operatorservice.CreateNexusEndpointRequest{Spec: &nexuspb.EndpointSpec{
		Name: name, Target: &nexuspb.EndpointTarget{Variant: &nexuspb.EndpointTarget_Worker_{
			Worker: &nexuspb.EndpointTarget_Worker{Namespace: s.namespace, TaskQueue: gpumux.Queue},
		}},
	}})
	require.NoError(t, err)
	return name
}

// asked is what a workflow of the neighbour says of its operation.
type asked struct {
	Summary gpumux.Summary
	Fault   *gpumux.Fault
}

// ask maps by Nexus, as docs/services.md shows.
func (n *neighbour) ask(ctx workflow.Context, in gpumux.MapInput) (a asked, err error) {
	gpus := workflow.NewNexusClient(n.endpoint, gpumux.NexusService)
	err = gpus.ExecuteOperation(ctx, gpumux.MapOperation, in, workflow.NexusOperationOptions{}).Get(ctx, &a.Summary)
	if a.Fault = workflows.FaultOf(err); a.Fault != nil {
		return a, nil
	}
	return a, err
}

func (n *neighbour) start(t *testing.T, id string, in gpumux.MapInput) client.WorkflowRun {
	t.Helper()
	run, err := n.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: "team"}, "ask", in)
	require.NoError(t, err)
	return run
}

// linked is the map that the operation of a caller's workflow links to.
func (n *neighbour) linked(t *testing.T, caller client.WorkflowRun) (namespace, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		events := n.client.GetWorkflowHistory(t.Context(), caller.GetID(), caller.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			require.NoError(t, err)
			if event.GetEventType() == enums.EVENT_TYPE_NEXUS_OPERATION_STARTED {
				require.Len(t, event.GetLinks(), 1)
				link := event.GetLinks()[0].GetWorkflowEvent()
				namespace, id = link.GetNamespace(), link.GetWorkflowId()
				return true
			}
		}
		return false
	}, time.Minute, 10*time.Millisecond)
	return namespace, id
}

// naming gives an operation the ID of its caller's workflow as the map's.
type naming struct {
	interceptor.WorkerInterceptorBase
}

func (*naming) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	in := &namingInbound{}
	in.Next = next
	return in
}

type namingInbound struct {
	interceptor.WorkflowInboundInterceptorBase
}

func (n *namingInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	out := &namingOutbound{}
	out.Next = outbound
	return n.Next.Init(out)
}

type namingOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
}

func (n *namingOutbound) ExecuteNexusOperation(ctx workflow.Context, in interceptor.ExecuteNexusOperationInput) workflow.NexusOperationFuture {
	if id := workflow.GetInfo(ctx).WorkflowExecution.ID; id != "unnamed" {
		in.NexusHeader = nexus.Header{gpumux.MapIDHeader: id}
	}
	return n.Next.ExecuteNexusOperation(ctx, in)
}

// A workflow of another namespace maps here: the summary, the fault of a map that fails,
// and the link to the map reach it; its cancellation ends the map.
func TestNexus_AnotherNamespaceMaps(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	n := newNeighbour(t, endpoint(t, s), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	var got asked
	run := n.start(t, "unnamed", staged(gpumux.MapInput{Items: items(1, 2, 3)}, on("cpu", "double"), on("cpu", "double")))
	require.NoError(t, run.Get(ctx, &got))
	require.EqualValues(t, 3, got.Summary.Succeeded)
	require.JSONEq(t, "12", string(got.Summary.Results[2].Value))
	namespace, id := n.linked(t, run)
	require.Equal(t, s.namespace, namespace)
	described, err := s.client.DescribeWorkflowExecution(ctx, id, "")
	require.NoError(t, err)
	require.Equal(t, gpumux.MapWorkflow, described.GetWorkflowExecutionInfo().GetType().GetName())
	require.Len(t, described.GetCallbacks(), 1)

	for name, refused := range map[string]struct {
		in    gpumux.MapInput
		kind  gpumux.FaultKind
		words string
	}{
		"invalid": {gpumux.MapInput{Task: "double", Chunk: -1}, gpumux.FaultBadInput, "chunk: -1 is outside"},
		"fails":   {gpumux.MapInput{Task: "fail", Items: items(3), Ladder: []string{"cpu"}, MaxFailures: "0"}, gpumux.FaultTaskError, "3 is a multiple of three"},
	} {
		got = asked{}
		require.NoError(t, n.start(t, name, refused.in).Get(ctx, &got))
		require.NotNil(t, got.Fault)
		require.Equal(t, refused.kind, got.Fault.Kind)
		require.Contains(t, got.Fault.Message, refused.words)
	}

	// Two callers that name one ID share one map.
	gate, second := filepath.Join(s.dir, "gate"), newNeighbour(t, n.endpoint, nil)
	in := gpumux.MapInput{Task: "wait", Items: items(gate), Ladder: []string{"cpu"}}
	runs := []client.WorkflowRun{n.start(t, "shared", in), second.start(t, "shared", in)}
	n.linked(t, runs[0])
	second.linked(t, runs[1])
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	for _, run := range runs {
		got = asked{}
		require.NoError(t, run.Get(ctx, &got))
		require.EqualValues(t, 1, got.Summary.Succeeded)
	}
	s.calledOnce(1)
	s.forget()

	run = n.start(t, "slow", gpumux.MapInput{Task: "slow", Items: items(600), Ladder: []string{"cpu"}})
	_, id = n.linked(t, run)
	require.Equal(t, "slow", id, "the ID that the caller gave")
	rig.Wait(t, func() bool { return len(s.seen()) > 0 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, n.client.CancelWorkflow(ctx, run.GetID(), ""))
	require.True(t, temporal.IsCanceledError(s.client.GetWorkflow(ctx, id, "").Get(ctx, nil)))
	require.ErrorContains(t, run.Get(ctx, nil), "canceled")
}

// A caller has the codec of the workers.
func TestNexus_TheCodecIsShared(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.apart(s.config("cpu", 1), workers.Options{Codec: codectest.Flipped{}})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	in := gpumux.MapInput{Task: "double", Items: items(4), Ladder: []string{"cpu"}}
	var got asked
	require.NoError(t, newNeighbour(t, endpoint(t, s), codectest.Flipped{}).start(t, "hidden", in).Get(ctx, &got))
	require.JSONEq(t, "8", string(got.Summary.Results[0].Value))
}
