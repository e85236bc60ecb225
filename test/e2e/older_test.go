package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux/starter"
)

// older is a client of a server without standalone activities, as before 1.32.
type older struct{ client.Client }

func (older) ExecuteActivity(context.Context, client.StartActivityOptions, any, ...any) (client.ActivityHandle, error) {
	return nil, serviceerror.NewUnimplemented("unknown method StartActivityExecution for service temporal.api.workflowservice.v1.WorkflowService")
}

func TestStarter_AServerWithoutStandaloneActivities(t *testing.T) {
	s := newStage(t)
	s.work()
	old := &starter.Starter{Client: older{s.Client}, Namespace: s.Namespace}
	t.Cleanup(old.Close)
	offer, err := fleetOf(old).Offer(t.Context())
	require.NoError(t, err)
	require.Equal(t, s.config.Store, offer.Store)
	all, err := fleetOf(old).Workers(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NotNil(t, all[0].Offer, all[0].Error)
	h, err := old.Start(t.Context(), s.over("double", 5000))
	require.NoError(t, err)
	results := s.results(h)
	require.Len(t, results, 5000)
	require.Equal(t, "9998", string(results[4999].Value))
}
