package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux/cmd/gpumux/devserver"
	"github.com/gpumux/gpumux/test/devservertest"
)

func TestRun_OneServerForAll(t *testing.T) {
	require.Same(t, devservertest.Run(t), devservertest.Run(t))
}

// The same workflow id at the same server, in the namespaces of two tests.
func TestNamespace_Isolates(t *testing.T) {
	mine := devservertest.Dial(t, devservertest.Run(t), devservertest.Namespace(t))
	_, err := mine.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "w", TaskQueue: "q"}, "any")
	require.NoError(t, err)
	_, err = devservertest.Dial(t, devservertest.Run(t), devservertest.Namespace(t)).DescribeWorkflowExecution(t.Context(), "w", "")
	var missing *serviceerror.NotFound
	require.ErrorAs(t, err, &missing)
}

func TestStart_StopsWithTheTest(t *testing.T) {
	var s *devserver.Server
	t.Run("inner", func(t *testing.T) { s = devservertest.Start(t, devserver.Options{}) })
	_, err := client.Dial(client.Options{HostPort: s.Address()})
	require.Error(t, err)
}
