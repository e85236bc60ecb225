package cli

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/starter"
)

// hostile is text that takes over a terminal which obeys it.
const hostile = "\x1b]8;;http://evil.example\x07click\x1b]8;;\x07\x1b]0;owned\x07\x1b[31m\x1b[2J\u009b31m\x9b31m\u202etxt.exe\u2066\rdone\x7f\b"

// Every way in which text of a task reaches a person.
func TestVisible_AllThatIsPrinted(t *testing.T) {
	fault := &gpumux.Fault{Kind: gpumux.FaultTaskError, Task: hostile, Message: hostile, Hint: hostile, Traceback: hostile, Tail: hostile}
	results := []gpumux.Result{{Index: 1, Fault: fault}}
	summary := gpumux.Summary{Task: hostile, Items: 2, Failed: 1, Results: results,
		Faults: map[gpumux.FaultKind]int64{gpumux.FaultKind(hostile): 1}}
	stages := []gpumux.StageProgress{{Task: hostile, Ladder: []string{hostile}, Slots: 1, ItemTime: 1}, {Task: hostile, Ladder: []string{"gpu"}, Slots: 1, ItemTime: 2}}
	summary.Stages = stages
	for name, print := range map[string]func(to io.Writer, a *app){
		"report": func(to io.Writer, _ *app) {
			(&ending{ID: hostile, Summary: summary, Causes: []starter.Cause{{Count: 3, Example: results[0]}}}).print(to)
		},
		"show": func(to io.Writer, _ *app) {
			report.Detail(to, &starter.Detail{MapInfo: starter.MapInfo{Task: hostile, Stages: stages}, Summary: &summary, Fault: fault, Pending: []starter.Pending{
				{Activity: hostile, Worker: hostile, Waiting: hostile, Fault: fault}}}, []starter.Cause{{Count: 3, Example: results[0]}}, hostile, time.Now())
		},
		"faults": func(to io.Writer, _ *app) {
			report.Faults(report.Visible(to), hostile, 4, []starter.Cause{{Count: 3, Example: results[0], Places: map[string]int64{hostile: 1}}}, true)
		},
		"columns": func(to io.Writer, _ *app) { require.NoError(t, report.Table(to, [][]string{{hostile, hostile}})) },
		"say":     func(_ io.Writer, a *app) { a.console.Say("gpumux: %v", fault) },
		"status": func(_ io.Writer, a *app) {
			a.console.Status("embed")
			a.console.Say("%s", hostile)
			a.console.Status(hostile)
		},
		"log":    func(_ io.Writer, a *app) { a.log(false).Warn(hostile) },
		"output": func(_ io.Writer, a *app) { require.Error(t, explain(a, &starter.EndedError{Fault: *fault})) },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			print(&out, &app{console: report.NewConsole(&out)})
			require.NotEmpty(t, out.String())
			ours := bytes.ReplaceAll(out.Bytes(), []byte("\r\x1b[K"), nil) // but for the console's own
			var seen bytes.Buffer
			_, err := report.Visible(&seen).Write(ours)
			require.NoError(t, err)
			require.Equal(t, string(ours), seen.String())
		})
	}
}
