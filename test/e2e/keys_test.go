package e2e

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/test/programtest"
)

// rowPy has tasks for items that are objects.
const rowPy = `
def half(row):
    if row["id"] == "c": raise ValueError("no half")
    print("seen")
    return {"half": row["n"] / 2}

def third(result):
    return result["value"]["half"] / 3
`

// Results have the keys of their items, failed ones too. They are the items of the next
// map through a pipe, and keep the keys.
func TestLocal_KeysAndResultsInAPipe(t *testing.T) {
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

	binary := programtest.Binary(t)
	command := exec.Command("sh", "-c", binary+" results first | "+binary+" map row.py:third --in - --key key --local")
	command.Dir, command.Env = s.dir, s.env
	out, err := command.Output()
	require.Error(t, err, "what failed has no value")
	second := s.lines(string(out))
	require.Len(t, second, 4)
	for i, want := range []string{"1.0", "2.0", "", "4.0"} {
		require.Equal(t, string(first[i]["key"]), string(second[i]["key"]))
		require.Equal(t, want, string(second[i]["value"]))
	}
}
