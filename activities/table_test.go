package activities

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/columns"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/store"
)

// Mistakes in a table end the map, and name it.
func TestIndexSource_TableMistakes(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), "file://"+dir)
	require.NoError(t, err)
	defer st.Close()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	(&Housekeeping{Store: st}).Register(env)
	file, err := os.Create(filepath.Join(dir, "x.parquet"))
	require.NoError(t, err)
	defer file.Close()
	to := columns.NewWriter(file, nil)
	for i := range 300 {
		require.NoError(t, to.Add(fmt.Appendf(nil, `{"index":%d,"value":{"id":%d,"text":"text %d"}}`, i, i, i)))
	}
	require.NoError(t, to.Finish())
	table, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	for name, data := range map[string][]byte{
		"cut.parquet": table[:len(table)/2], "hole.parquet": append(make([]byte, 1000), table[1000:]...), "text.parquet": []byte("{}\n"), "empty.parquet": nil,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	for name, c := range map[string]struct {
		source, key string
		columns     []string
		want        string
	}{
		"unknown column": {"x.parquet", "", []string{"id", "txt"}, st.Objects.Locate("x.parquet") + `: there is no column "txt"; it has index, id, text, fault, fault_message`},
		"cut off":        {"cut.parquet", "", nil, st.Objects.Locate("cut.parquet") + ": not read as .parquet: "},
		"damaged":        {"hole.parquet", "", nil, st.Objects.Locate("hole.parquet") + ": not read as .parquet: "},
		"text":           {"text.parquet", "", nil, st.Objects.Locate("text.parquet") + ": not read as .parquet: "},
		"empty":          {"empty.parquet", "", nil, st.Objects.Locate("empty.parquet") + ": not read as .parquet: "},
		"none":           {"none.parquet", "", nil, "none.parquet: file does not exist"},
		"outside":        {"file:///etc/x.parquet", "", nil, "lies outside the store"},
		"key left out":   {"x.parquet", "id", []string{"text"}, `the first item has no field "id"; it has text`},
		"packed":         {"x.parquet.gz", "", nil, "never compressed as a whole"},
	} {
		_, err := env.ExecuteActivity(contract.IndexSource,
			contract.IndexInput{Source: c.source, Index: "maps/m/x.parts/source.index", Key: c.key, Columns: c.columns})
		require.ErrorContains(t, err, c.want, name)
		var failed *temporal.ApplicationError
		require.ErrorAs(t, err, &failed, name)
		require.Equal(t, string(gpumux.FaultBadInput), failed.Type(), name)
	}
}
