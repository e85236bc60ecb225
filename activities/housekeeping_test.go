package activities

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/store"
)

// A results file replaces the object of its name. So it must not be the source, neither
// by key nor by URL.
func TestIndexSource_NotOverItsResults(t *testing.T) {
	st, err := store.Open(t.Context(), "file://"+filepath.Join(t.TempDir(), "store"))
	require.NoError(t, err)
	defer st.Close()
	w, err := st.Objects.Create(t.Context(), "a/x.jsonl", objects.Creation{})
	require.NoError(t, err)
	_, err = w.Write([]byte("1\n2\n"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	(&Housekeeping{Store: st}).Register(env)
	for output, same := range map[string]bool{"a/x.jsonl": true, st.Objects.Locate("a/x.jsonl"): true, "a/y.jsonl": false, "x.jsonl": false,
		"a/x.jsonl/y.jsonl": false} {
		for _, source := range []string{"a/x.jsonl", st.Objects.Locate("a/x.jsonl")} {
			got, err := env.ExecuteActivity(contract.IndexSource, contract.IndexInput{Source: source, Index: contract.PartsOf(output) + "/source.index"})
			if same {
				require.ErrorContains(t, err, "is the source itself, which would be overwritten", output)
				continue
			}
			if output == "a/x.jsonl/y.jsonl" {
				var final *temporal.ApplicationError
				require.ErrorAs(t, err, &final)
				require.True(t, final.NonRetryable())
				require.ErrorContains(t, err, "an object lies where a folder is to be")
				continue
			}
			require.NoError(t, err, output)
			var found contract.Source
			require.NoError(t, got.Get(&found))
			require.EqualValues(t, 2, found.Items)
		}
	}
}
