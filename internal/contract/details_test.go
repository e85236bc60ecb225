package contract

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// The Web UI shows a map's details as Markdown, and a task's text may hold any
// characters.
func TestDetails_TextOfTasksIsOnlyText(t *testing.T) {
	hostile := "[x](javascript:alert(1)) <img src=x onerror=alert(1)> ```\n\n# big\n| a | b |\n![i](http://evil.example/i)\x1b[31m\u202e"
	text := Details(gpumux.Progress{
		Task: hostile, Phase: gpumux.PhaseRunning, Items: 2, Failed: 1, Faults: map[gpumux.FaultKind]int64{gpumux.FaultKind(hostile): 1},
		Recent:     []gpumux.Result{{Index: 1, Fault: &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: hostile, Hint: hostile}}},
		WaitingFor: hostile,
	}, []string{hostile}, []string{hostile, hostile})
	lines := strings.Split(text, "\n")
	require.Len(t, lines, 12, "no line of theirs begins one: %q", text)
	for _, line := range lines {
		for i, part := range strings.Split(line, "````") {
			if i%2 == 0 { // outside of code marks
				require.NotContains(t, part, "](", line)
				require.NotContains(t, part, "<", line)
				require.NotContains(t, part, "://", line)
			}
		}
		require.NotContains(t, line, "\x1b")
		require.NotContains(t, line, "\u202e")
	}
}
