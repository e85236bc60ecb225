package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

// A function of an R file is a task like one in Python: persistent or fresh, with its own
// output and faults.
func TestR_FunctionIsATask(t *testing.T) {
	t.Parallel()
	rig.WithoutR(t)
	s := newShell(t)
	s.write("near.R", "offset <- 1\n")
	s.write("fit.R", `source("near.R")
fit <- function(item) {
  if (item$x == 3) stop("three")
  if (item$x == 4) tools::pskill(Sys.getpid(), tools::SIGKILL)
  cat("item", item$x, "\n")
  list(y = item$x^2 + offset)
}
pid <- function(item) Sys.getpid()
`)
	s.write("items.jsonl", "{\"x\":1}\n{\"x\":2}\n{\"x\":3}\n{\"x\":4}\n{\"x\":5}\n")
	args := []string{"map", "fit.R:fit", "--in", "items.jsonl", "--local", "--slots", "1", "--out", "-"}
	for mode, processes := range map[string]int{"persistent": 1, "fresh": 3} {
		p := s.run(1, append(args, "--mode", mode)...)
		results := s.lines(p.stdout.String())
		require.Len(t, results, 5)
		require.JSONEq(t, `{"y":5}`, string(results[1]["value"]))
		require.JSONEq(t, `"item 2 \n"`, string(results[1]["output"]))
		require.Contains(t, string(results[2]["fault"]), `"kind":"task_error"`)
		require.Contains(t, string(results[2]["fault"]), `at fit.R#3`)
		require.Contains(t, string(results[3]["fault"]), `"kind":"crash"`)
		require.JSONEq(t, `{"y":26}`, string(results[4]["value"]))

		pids := map[string]bool{}
		p = s.run(0, "map", "fit.R:pid", "--range", "0:3", "--local", "--slots", "1", "--out", "-", "--mode", mode)
		for _, result := range s.lines(p.stdout.String()) {
			pids[string(result["value"])] = true
		}
		require.Len(t, pids, processes, mode)
	}
	p := s.run(2, "map", "fit.R:fitt", "--range", "0:3", "--local")
	require.Contains(t, p.stderr.String(), "has no function fitt")
}
