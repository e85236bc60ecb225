package devservertest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux/devserver"
)

func TestRun_OneServerForAll(t *testing.T) {
	require.Same(t, Run(t), Run(t))
}

// The same workflow id at the same server, in the namespaces of two tests.
func TestNamespace_Isolates(t *testing.T) {
	mine := Dial(t, Run(t), Namespace(t))
	_, err := mine.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "w", TaskQueue: "q"}, "any")
	require.NoError(t, err)
	_, err = Dial(t, Run(t), Namespace(t)).DescribeWorkflowExecution(t.Context(), "w", "")
	var missing *serviceerror.NotFound
	require.ErrorAs(t, err, &missing)
}

func TestStart_StopsWithTheTest(t *testing.T) {
	var s *devserver.Server
	t.Run("inner", func(t *testing.T) { s = Start(t, devserver.Options{}) })
	_, err := client.Dial(client.Options{HostPort: s.Address()})
	require.Error(t, err)
}
