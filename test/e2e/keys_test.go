package e2e

import (
	"os"
	"os/exec"
	"strings"
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

// An input that has grown runs what is new and what failed; given again the same command
// is the same map.
func TestLocal_SkipsWhatHasAValue(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("row.py", rowPy)
	s.write("items.csv", "id,n\na,6\nb,12\nc,18\n")
	require.NoError(t, os.Mkdir(s.path("done"), 0o755))
	day := func(code int, out string) *program {
		return s.run(code, "map", "row.py:half", "--in", "items.csv", "--local", "--key", "id", "--skip", "done/*", "--out", "done/"+out)
	}
	require.Contains(t, day(1, "1.parquet").stderr.String(), "0 of 3 items have a value in done/*")
	s.write("items.csv", "id,n\nb,12\nc,18\nd,24\na,6\n")
	for times := range 2 {
		p := day(1, "2.jsonl")
		require.Equal(t, times > 0, strings.Contains(p.stderr.String(), "note: done/2.jsonl does not count for --skip: it is the file of --out"))
		require.Contains(t, p.stderr.String(), "2 of 4 items have a value in done/*")
		require.Contains(t, p.stderr.String(), "succeeded  1\n")
		rows := s.lines(s.file("done/2.jsonl"))
		require.Equal(t, `"c"`, string(rows[0]["key"]))
		require.Contains(t, string(rows[0]["fault"]), "no half")
		require.Equal(t, `"d"`, string(rows[1]["key"]))
		require.JSONEq(t, `{"half":12}`, string(rows[1]["value"]))
	}
	s.write("items.csv", "id,n\na,6\nd,24\n")
	require.Contains(t, day(0, "3.parquet").stderr.String(), "2 of 2 items have a value in done/*")
	require.NoFileExists(t, s.path("done/3.parquet"))
}
