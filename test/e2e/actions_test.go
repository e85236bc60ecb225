package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/update/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// meter counts of what passes a frontend what Temporal Cloud bills, its actions, by kind.
// Its rules are those of the server's own counter "action"
// (common/rpc/interceptor/telemetry.go).
type meter struct {
	mu      sync.Mutex
	actions map[string]int
}

// billed are the methods whose every call is an action.
var billed = []string{"RecordActivityTaskHeartbeat", "RecordActivityTaskHeartbeatById", "ResetWorkflowExecution", "SignalWorkflowExecution",
	"SignalWithStartWorkflowExecution", "QueryWorkflow", "StartWorkflowExecution", "StartActivityExecution"}

// commands are the workflow's decisions that are an action each.
var commands = []enums.CommandType{enums.COMMAND_TYPE_START_TIMER, enums.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK,
	enums.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION, enums.COMMAND_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION,
	enums.COMMAND_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES, enums.COMMAND_TYPE_MODIFY_WORKFLOW_PROPERTIES,
	enums.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION, enums.COMMAND_TYPE_SCHEDULE_NEXUS_OPERATION}

// intercept counts a call that the server has answered.
func (m *meter) intercept(ctx context.Context, req any, call *grpc.UnaryServerInfo, pass grpc.UnaryHandler) (any, error) {
	method := call.FullMethod[strings.LastIndex(call.FullMethod, "/")+1:]
	answer, err := pass(ctx, req)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		return answer, err
	}
	if slices.Contains(billed, method) {
		m.actions[method]++
	}
	if polled, ok := answer.(*workflowservice.PollActivityTaskQueueResponse); ok && polled.GetAttempt() > 1 {
		m.actions["retry"]++
	}
	done, _ := req.(*workflowservice.RespondWorkflowTaskCompletedRequest)
	marked := false
	for _, command := range done.GetCommands() {
		switch kind := command.GetCommandType(); {
		case kind == enums.COMMAND_TYPE_RECORD_MARKER:
			marked = true // those of a task are one action together
		case slices.Contains(commands, kind):
			m.actions[kind.String()]++
		}
		if command.GetCommandType() == enums.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION {
			m.actions["child"]++ // counts as two
		}
	}
	if marked {
		m.actions["marker"]++
	}
	for _, message := range done.GetMessages() {
		if body := message.GetBody(); body.MessageIs(&update.Acceptance{}) || body.MessageIs(&update.Rejection{}) {
			m.actions["update"]++
		}
	}
	return answer, nil
}

// read returns how many actions there were, and what they were.
func (m *meter) read() (n int, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(m.actions)) {
		n += m.actions[kind]
		text += fmt.Sprintf(" %s %d", kind, m.actions[kind])
	}
	return n, text
}

// metered is a server, a worker with so many slots that reaches it through a meter, and a
// client that does. Items of the task sleep for so long.
func metered(t *testing.T, slots int, each time.Duration) (*meter, client.Client) {
	h := newHost(t)
	h.write("nap.py", "import time\ndef nap(x):\n    time.sleep("+fmt.Sprint(each.Seconds())+")\n    return x\n")
	h.write("worker.yaml", fmt.Sprintf("store: file://%s\npools: [{name: cpu, devices: cpu, slots: %d}]\ntasks: {nap: {python: \"nap.py:nap\"}}\n", h.path("store"), slots))
	m := &meter{actions: map[string]int{}}
	address := frontend(t, h.address, m.intercept)
	h.env = append(h.env, "TEMPORAL_ADDRESS="+address)
	h.worker()
	c, err := client.Dial(client.Options{HostPort: address, Namespace: h.namespace})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return m, c
}

// perItem runs a map and returns its actions per item.
func perItem(t *testing.T, m *meter, c client.Client, items int64) float64 {
	before, _ := m.read()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: gpumux.Queue}, gpumux.MapWorkflow,
		gpumux.MapInput{Task: "nap", Range: &gpumux.Range{End: items}, Ladder: []string{"cpu"}})
	require.NoError(t, err)
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.Equal(t, items, sum.Succeeded)
	after, text := m.read()
	t.Logf("%d items, %d chunks, %.2f actions per item:%s", items, sum.Chunks, float64(after-before)/float64(items), text)
	return float64(after-before) / float64(items)
}

// rest is what a map costs beside heartbeats.
func (m *meter) rest() int {
	n, _ := m.read()
	m.mu.Lock()
	defer m.mu.Unlock()
	return n - m.actions["RecordActivityTaskHeartbeat"]
}

// Items of a second cost an activity each, and what the map costs once, also in a
// workflow of one's own. A busy machine may add a heartbeat where a chunk begins while
// the server is slow.
func TestActions_PerItem(t *testing.T) {
	t.Parallel()
	m, c := metered(t, 5, time.Second)
	perItem(t, m, c, 60)
	first := m.rest()
	require.LessOrEqual(t, first, 72)

	service(t, c, map[string]any{"map": func(ctx workflow.Context) error {
		_, err := workflows.Map[int, int](ctx, gpumux.MapInput{Task: "nap", Ladder: []string{"cpu"}}, make([]int, 60))
		return err
	}})
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "service"}, "map")
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	require.LessOrEqual(t, m.rest()-first, 72)
}

// The figures of docs/benchmarks.md: items of a second, of five and of a minute.
func TestLong_ActionsPerItem(t *testing.T) {
	for _, c := range []struct {
		each  time.Duration
		slots int
		items int64
		limit float64
	}{{time.Second, 1, 60, 1.2}, {time.Second, 5, 300, 1.2}, {5 * time.Second, 1, 20, 1.2}, {5 * time.Second, 20, 100, 1.1}, {time.Minute, 20, 40, 7}} {
		t.Run(fmt.Sprintf("%s on %d", c.each, c.slots), func(t *testing.T) {
			m, to := metered(t, c.slots, c.each)
			require.LessOrEqual(t, perItem(t, m, to, c.items), c.limit)
		})
	}
}
