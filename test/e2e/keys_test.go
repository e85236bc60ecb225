package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rowPy has tasks for items that are objects.
const rowPy = `
def half(row):
    if row["id"] == "c": raise ValueError("no half")
    print("seen")
    return {"half": row["n"] / 2}

def third(value):
    return value["half"] / 3
`

// Results have the keys of their items, failed ones too. The values of one map are the
// items of the next, and keep the keys.
func TestLocal_KeysAndTheValuesOfAMap(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("row.py", rowPy)
	s.write("items.csv", "id,n\na,6\nb,12\nc,18\nd,24\n")
	p := s.run(1, "map", "row.py:half", "--in", "items.csv", "--local", "--key", "id", "--id", "first")
	first := s.lines(p.stdout.String())
	for i, key := range []string{`"a"`, `"b"`, `"c"`, `"d"`} {
		require.Equal(t, key, string(first[i]["key"]))
	}
	require.Contains(t, string(first[2]["fault"]), "no half")
	require.Contains(t, p.stderr.String(), `item 2 = {"id":"c","n":18}, key "c": task_error`)

	p = s.run(0, "map", "row.py:third", "--in", "results:first", "--local", "--with-item")
	want := ""
	for i, key := range []string{"a", "b", "d"} {
		value := []int{1, 2, 4}[i]
		want += fmt.Sprintf("{\"index\":%d,\"value\":%d.0,\"key\":\"%s\",\"item\":{\"half\": %d.0}}\n", i, value, key, 3*value)
	}
	require.Equal(t, want, strings.ReplaceAll(p.stdout.String(), `{"half":`, `{"half": `), "whichever way the task's JSON is spaced")
	require.Contains(t, s.run(2, "map", "row.py:third", "--in", "results:second", "--local").stderr.String(), "no results of a finished map second")
}
