package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
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

// What a server's workers have in their store is read there.
func TestStarter_TheValuesOfAMap(t *testing.T) {
	s := newStage(t)
	s.work()
	m := s.over("double", 10)
	m.ID = "first"
	_, err := s.wait(s.start(m))
	require.NoError(t, err)
	source, err := s.ValuesOf(t.Context(), "first")
	require.NoError(t, err)
	m = starter.Map{Input: gpumux.MapInput{Task: "step:double", Ladder: []string{"cpu"}, Source: source}}
	h := s.start(m)
	_, err = s.wait(h)
	require.NoError(t, err)
	for i, r := range s.results(h) {
		require.Equal(t, fmt.Sprint(4*i), string(r.Value))
	}
	_, err = s.ValuesOf(t.Context(), "second")
	require.ErrorAs(t, err, new(*starter.NotFoundError))
}
