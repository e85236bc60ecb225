package activities

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
)

// lasting takes so long for every item.
type lasting time.Duration

func (r lasting) Run(_ context.Context, call calls.Call, work calls.Work) error {
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		time.Sleep(time.Duration(r))
		work.Done(calls.Done{Result: gpumux.Result{Index: item.Index, Value: item.Value}})
	}
	return nil
}

// hearing hears the heartbeats of activities, none held back.
type hearing struct {
	interceptor.WorkerInterceptorBase
	heard func(details []any)
}

func (h *hearing) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &hearingInbound{interceptor.ActivityInboundInterceptorBase{Next: next}, h}
}

type hearingInbound struct {
	interceptor.ActivityInboundInterceptorBase
	hearing *hearing
}

func (i *hearingInbound) Init(next interceptor.ActivityOutboundInterceptor) error {
	return i.Next.Init(&hearingOutbound{interceptor.ActivityOutboundInterceptorBase{Next: next}, i.hearing})
}

type hearingOutbound struct {
	interceptor.ActivityOutboundInterceptorBase
	hearing *hearing
}

func (o *hearingOutbound) RecordHeartbeat(_ context.Context, details ...any) {
	o.hearing.heard(details)
}

// Each heartbeat is a write of the map, and may be billed. None carries a result.
func TestRunChunk_HeartbeatsAreFew(t *testing.T) {
	for lasts, want := range map[time.Duration]int{2 * time.Second: 0, 9 * time.Second: 0, time.Minute - time.Second: 5} {
		for _, parts := range []string{"", "m/parts"} {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, lasting(lasts/4))
				l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
				heard := 0
				l.env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&hearing{heard: func(details []any) {
					heard++
					encoded, err := json.Marshal(details)
					require.NoError(t, err)
					require.NotContains(t, string(encoded), "results")
				}}}})
				_, err := l.env.ExecuteActivity("chunk", contract.Chunk{Range: &gpumux.Range{End: 4}, Work: contract.Whole(4), Parts: parts})
				require.NoError(t, err)
				require.Equal(t, want, heard, "%s %q", lasts, parts)
			})
		}
	}
}
