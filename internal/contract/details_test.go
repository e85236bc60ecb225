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
	}, []string{hostile})
	lines := strings.Split(text, "\n")
	require.Len(t, lines, 10, "no line of theirs begins one: %q", text)
	for _, line := range lines {
		for i, part := range strings.Split(line, "`") {
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

// What a map waits for is known where its own state tells.
func TestWaitingFor(t *testing.T) {
	p := gpumux.Progress{Phase: gpumux.PhaseRunning, InFlight: 1}
	ladder := []string{"small", "large"}
	for want, change := range map[string]func(*gpumux.Progress, *bool){
		"":                     func(*gpumux.Progress, *bool) {},
		"the store":            func(p *gpumux.Progress, _ *bool) { p.Phase = gpumux.PhaseMerging },
		"resume":               func(p *gpumux.Progress, _ *bool) { p.Paused, p.InFlight = true, 0 },
		"a slot of pool small": func(_ *gpumux.Progress, asking *bool) { *asking = true },
		"a slot of pool large": func(p *gpumux.Progress, asking *bool) { *asking, p.PassedOver = true, ladder[:1] },
		"a worker for pool large": func(p *gpumux.Progress, asking *bool) {
			*asking, p.PassedOver = true, ladder
		},
		"another try of items that raised": func(p *gpumux.Progress, _ *bool) { p.InFlight, p.Waiting = 0, 3 },
	} {
		now, asking := p, false
		change(&now, &asking)
		require.Equal(t, want, WaitingFor(now, ladder, asking, false))
	}
	p.Paused = true
	require.Empty(t, WaitingFor(p, ladder, false, false), "chunks in flight go on")
}
