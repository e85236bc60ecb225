package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/devserver/test/devservertest"
)

// A worker that is root runs tasks as a user who gets at nothing of the worker's.
func TestUser_OfAPool(t *testing.T) {
	s := newShell(t)
	s.env = append(s.env, "TEMPORAL_ADDRESS="+devservertest.Run(t).Address(), "TEMPORAL_NAMESPACE="+devservertest.Namespace(t),
		"XDG_DATA_HOME="+s.path("data"), "AWS_SECRET_ACCESS_KEY=marker")
	s.write("worker.yaml", `pools: [{name: cpu, devices: cpu, slots: 2, user: "65534:65534"}]
tasks:
  who: {command: [/bin/sh, -c, "id -u; echo $HOME; cat /proc/$PPID/environ 2>&1; :"], dir: /, output: text}
`)
	if os.Geteuid() != 0 {
		p := s.run(2, "worker", "-f", "worker.yaml")
		require.Contains(t, p.stderr.String(), "pools[0].user: this worker lacks CAP_SETUID")
		return
	}
	e := &example{shell: s}
	e.work("worker.yaml")
	s.run(0, "map", "who", "--pool", "cpu", "--range", "0:20", "--out", "who.jsonl")
	for _, line := range s.lines(s.file("who.jsonl")) {
		var said string
		require.NoError(t, json.Unmarshal(line["value"], &said))
		who, rest, _ := strings.Cut(said, "\n")
		require.Equal(t, "65534", who)
		require.Contains(t, rest, "Permission denied")
		require.NotContains(t, rest, "marker")
	}
}
