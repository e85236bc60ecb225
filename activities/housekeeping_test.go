package activities

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/store"
)

// A file that takes workers with it, as damaged tables can, does not take all of them.
func TestIndexSource_EndsWithTheThirdWorkerThatItEnded(t *testing.T) {
	st, err := store.Open(t.Context(), "mem://", nil)
	require.NoError(t, err)
	defer st.Close()
	w, err := st.Objects.Create(t.Context(), "x.jsonl")
	require.NoError(t, err)
	_, err = w.Write([]byte("1\n"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for ended, refused := range []bool{false, false, false, true} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		(&Housekeeping{Store: st}).Register(env)
		var told []int
		env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
			var n int
			require.NoError(t, details.Get(&n))
			told = append(told, n)
		})
		if ended > 0 {
			env.SetHeartbeatDetails(ended)
		}
		_, err := env.ExecuteActivity(contract.IndexSource, contract.IndexInput{Source: "x.jsonl", Index: "i/source.index"})
		if refused {
			require.ErrorContains(t, err, "source x.jsonl: 3 workers ended while they read it")
			require.Empty(t, told)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, ended+1, told[0])
	}
}
