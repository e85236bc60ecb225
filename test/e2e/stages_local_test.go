package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

// nearPy leaves a line for each call of a stage.
const nearPy = `
import os, time
HERE = os.path.dirname(os.path.abspath(__file__))
def call(stage, x):
    with open(os.path.join(HERE, "calls"), "a") as calls:
        calls.write(f"{stage}{x}\n")
`

func newStagesHere(t *testing.T) *shell {
	t.Helper()
	s := newShell(t)
	s.write("near.py", nearPy)
	s.write("load.py", "from near import call\ndef decode(x):\n    call('d', x)\n    if x == 3: raise ValueError('three')\n    return {'x': x, 'more': 'y' * 10}\n")
	s.write("embed.py", embedAs("10"))
	return s
}

// embedAs is the code of a second stage, which multiplies by a number. From 7 on it waits
// while there is a file hold.
func embedAs(by string) string {
	return "import os, time\nfrom near import HERE, call\ndef embed(item):\n    x = item['x']\n    call('e', x)\n    if x == 5: raise KeyError('five')\n" +
		"    while x > 6 and os.path.exists(os.path.join(HERE, 'hold')): time.sleep(0.01)\n    return x * " + by + "\n"
}

// called are the lines that the stages left, sorted, and removes them.
func called(s *shell) []string {
	lines := strings.Fields(s.file("calls"))
	slices.Sort(lines)
	require.NoError(s.t, os.Remove(s.path("calls")))
	return lines
}

// outcomes are the values of results, or the class and task of their faults.
func outcomes(s *shell, text string) (all []string) {
	for _, line := range s.lines(text) {
		var fault struct{ Class, Task string }
		if line["fault"] != nil {
			require.NoError(s.t, json.Unmarshal(line["fault"], &fault))
			all = append(all, fault.Class+" in "+fault.Task)
		} else {
			all = append(all, string(line["value"]))
		}
	}
	return all
}

func TestStagesLocal_ValuesAndFaults(t *testing.T) {
	t.Parallel()
	s := newStagesHere(t)
	words := []string{"map", "load.py:decode", "embed.py:embed", "--range", "0:7", "--local"}
	p := s.run(1, append(words, "--slots", "cpu=2,cpu-b=1")...)
	want := []string{"0", "10", "20", "ValueError in load.py:decode", "40", "KeyError in embed.py:embed", "60"}
	require.Equal(t, want, outcomes(s, p.stdout.String()))
	require.Contains(t, p.stderr.String(), "stages: decode on cpu, embed on cpu-b")
	require.Equal(t, []string{"d0", "d1", "d2", "d3", "d4", "d5", "d6", "e0", "e1", "e2", "e4", "e5", "e6"}, called(s))
	require.Len(t, s.state(), 1, "for a retry")

	s.write("load.py", "from near import call\ndef decode(x):\n    call('d', x)\n    return {'x': x}\n")
	p = s.run(1, append(words, "--slots", "cpu=2,cpu-b=1", "--retry")...)
	want[3] = "30"
	require.Equal(t, want, outcomes(s, p.stdout.String()))
	require.Subset(t, called(s), []string{"d3", "e3", "e5"})
}

// Pools of their own, where no GPU is and none is named, and one that both share.
func TestStagesLocal_Pools(t *testing.T) {
	t.Parallel()
	s := newStagesHere(t)
	p := s.run(0, "map", "load.py:decode", "embed.py:embed", "--range", "0:3", "--local", "--devices", "cpu", "--slots", "1")
	require.Equal(t, []string{"0", "10", "20"}, outcomes(s, p.stdout.String()))
	require.Contains(t, p.stderr.String(), "stages: decode on cpu, embed on cpu-2")
	require.Empty(t, s.state())
	p = s.run(0, "map", "load.py:decode@cpu", "embed.py:embed@cpu", "--range", "0:3", "--local", "--slots", "cpu=1")
	require.Equal(t, []string{"0", "10", "20"}, outcomes(s, p.stdout.String()))
}

// A map that was stopped keeps what it has. With other code of the last stage it keeps
// what the first gave, with other code of the first it is another map.
func TestStagesLocal_GoesOn(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"Interrupt": syscall.SIGINT, "Kill": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStagesHere(t)
			words := []string{"map", "load.py:decode@cpu", "embed.py:embed@cpu-2", "--in", "items.jsonl", "--local", "--slots", "cpu=1,cpu-2=3",
				"--option", "chunk=1"}
			s.write("items.jsonl", "0\n1\n2\n4\n6\n7\n8\n9\n")
			s.write("hold", "")
			stop := func() []string {
				p := s.begin(append(words, "--out", "out.jsonl")...)
				rig.Wait(t, func() bool {
					calls := s.calls()
					return p.over() || calls["e7"] > 0 && calls["e8"] > 0 && calls["e9"] > 0
				}, time.Minute, 20*time.Millisecond, "the second stage holds its items")
				require.False(t, p.over(), &p.stderr)
				require.NoError(t, p.Process.Signal(signal))
				p.code()
				return called(s)
			}
			stop()
			before := s.state()
			require.Len(t, before, 1)
			require.Subset(t, []string{"e0", "e1", "e2", "e4", "e6", "e7", "e8", "e9"}, stop(), "the first stage is done")

			s.write("embed.py", embedAs("100"))
			require.NoError(t, os.Remove(s.path("hold")))
			p := s.run(0, words...)
			require.Equal(t, []string{"0", "100", "200", "400", "600", "700", "800", "900"}, outcomes(s, p.stdout.String()))
			require.Contains(t, p.stderr.String(), "note: the files of task embed.py:embed have changed since map "+filepath.Base(before[0])+" was stopped: its items run again; what decode gave is kept")
			require.Equal(t, []string{"e0", "e1", "e2", "e4", "e6", "e7", "e8", "e9"}, called(s))
			require.Empty(t, s.state())
		})
	}
}

func TestStagesLocal_Keep(t *testing.T) {
	t.Parallel()
	s := newStagesHere(t)
	words := []string{"map", "load.py:decode@cpu", "embed.py:embed@cpu", "--range", "0:3", "--local", "--slots", "cpu=1", "--keep", "decode"}
	p := s.run(0, words...)
	require.Equal(t, []string{"0", "10", "20"}, outcomes(s, p.stdout.String()))
	require.Len(t, s.state(), 1)
	called(s)
	s.write("embed.py", embedAs("100"))
	p = s.run(0, words...)
	require.Equal(t, []string{"0", "100", "200"}, outcomes(s, p.stdout.String()))
	require.Equal(t, []string{"e0", "e1", "e2"}, called(s))
	s.write("near.py", nearPy+"more = 1\n")
	s.run(0, words...)
	require.Equal(t, []string{"d0", "d1", "d2", "e0", "e1", "e2"}, called(s))
	require.Len(t, s.state(), 2, "other code of the first stage makes another map")
}
