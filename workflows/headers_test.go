package workflows_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/payload"
)

type tenantKey struct{}

// tenant is a propagator like a service's own. One that only reads stands for the code
// behind a gpumux worker.
type tenant struct{ reads bool }

func (p tenant) Inject(context.Context, workflow.HeaderWriter) error { return nil }

func (p tenant) InjectFromWorkflow(ctx workflow.Context, to workflow.HeaderWriter) error {
	if name, ok := ctx.Value(tenantKey{}).(string); ok && !p.reads {
		payload, err := converter.GetDefaultDataConverter().ToPayload(name)
		if err != nil {
			return err
		}
		to.Set("tenant", payload)
	}
	return nil
}

func (p tenant) read(from workflow.HeaderReader) (name string, err error) {
	if payload, ok := from.Get("tenant"); ok {
		err = converter.GetDefaultDataConverter().FromPayload(payload, &name)
	}
	return name, err
}

func (p tenant) Extract(ctx context.Context, from workflow.HeaderReader) (context.Context, error) {
	name, err := p.read(from)
	return context.WithValue(ctx, tenantKey{}, name), err
}

func (p tenant) ExtractToWorkflow(ctx workflow.Context, from workflow.HeaderReader) (workflow.Context, error) {
	name, err := p.read(from)
	return workflow.WithValue(ctx, tenantKey{}, name), err
}

// Headers of a map, such as a tenant or a trace, reach every chunk, also in segments.
// This holds for a service's own propagator and for that of gpumux's workers, which knows
// no header by name.
func TestRegistered_HeadersReachEveryChunk(t *testing.T) {
	for name, propagators := range map[string][]workflow.ContextPropagator{
		"the service's own": {tenant{}},
		"any":               {payload.Headers{}, tenant{reads: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var suite testsuite.WorkflowTestSuite
			suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
			suite.SetContextPropagators(propagators)
			payload, err := converter.GetDefaultDataConverter().ToPayload("acme")
			require.NoError(t, err)
			suite.SetHeader(&common.Header{Fields: map[string]*common.Payload{"tenant": payload}})
			env := suite.NewTestWorkflowEnvironment()
			env.SetTestTimeout(time.Minute)
			var mu sync.Mutex
			seen := map[any]int{}
			w := &worker{items: 700}
			w.told = func(ctx context.Context) {
				mu.Lock()
				defer mu.Unlock()
				seen[ctx.Value(tenantKey{})]++
			}
			w.register(env)
			env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1})
			require.NoError(t, env.GetWorkflowError())
			require.Equal(t, map[any]int{"acme": 700}, seen)
		})
	}
}
