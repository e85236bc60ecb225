package payload

import (
	"context"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/workflow"
)

// Headers passes every header that a workflow was started with on to its activities, its
// children and the run that continues it. Such a header traces or names a tenant. Headers
// reads none, so that a worker need not know them. It is a workflow.ContextPropagator.
type Headers struct {
	// Traced leaves the trace to the interceptors, which put each span into the header of
	// the next.
	Traced bool
}

// carried is the key of the headers in a context.
type carried struct{}

// Inject implements workflow.ContextPropagator.
func (Headers) Inject(ctx context.Context, to workflow.HeaderWriter) error {
	return write(ctx.Value(carried{}), to)
}

// InjectFromWorkflow implements workflow.ContextPropagator.
func (Headers) InjectFromWorkflow(ctx workflow.Context, to workflow.HeaderWriter) error {
	return write(ctx.Value(carried{}), to)
}

// Extract implements workflow.ContextPropagator.
func (h Headers) Extract(ctx context.Context, from workflow.HeaderReader) (context.Context, error) {
	found, err := h.read(from)
	return context.WithValue(ctx, carried{}, found), err
}

// ExtractToWorkflow implements workflow.ContextPropagator.
func (h Headers) ExtractToWorkflow(ctx workflow.Context, from workflow.HeaderReader) (workflow.Context, error) {
	found, err := h.read(from)
	return workflow.WithValue(ctx, carried{}, found), err
}

// traceKey is where all Temporal SDKs put the trace.
const traceKey = "_tracer-data"

func (h Headers) read(from workflow.HeaderReader) (map[string]*common.Payload, error) {
	found := map[string]*common.Payload{}
	return found, from.ForEachKey(func(key string, value *common.Payload) error {
		if !h.Traced || key != traceKey {
			found[key] = value
		}
		return nil
	})
}

func write(value any, to workflow.HeaderWriter) error {
	found, _ := value.(map[string]*common.Payload)
	for key, each := range found {
		to.Set(key, each)
	}
	return nil
}
