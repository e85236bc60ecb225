package contract

import (
	"strings"
	"testing"
	"time"

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

func TestDetails_Stages(t *testing.T) {
	p := gpumux.Progress{Task: "decode > embed", Phase: gpumux.PhaseRunning, Items: 10, Succeeded: 3, Failed: 1, Stages: []gpumux.StageProgress{
		{Task: "decode", Ladder: []string{"cpu"}, Succeeded: 6, Failed: 1, Running: 2, Waiting: 1, Slots: 8, ItemTime: gpumux.Duration(time.Second)},
		{Task: "em|bed", Ladder: []string{"gpu", "big"}, Succeeded: 3, Running: 1, Waiting: 2, Slots: 1, ItemTime: gpumux.Duration(time.Second)},
	}, Recent: []gpumux.Result{{Index: 4, Fault: &gpumux.Fault{Kind: gpumux.FaultCrash, Task: "decode", Message: "gone"}}}}
	text := Details(p, []string{"cpu", "gpu", "big"})
	require.Contains(t, text, "**`decode > embed`** over 10 items on cpu, then gpu, then big: running\n")
	require.Contains(t, text, "\n\n| stage | on | finished | failed | running | waiting | slots | items/s of them |\n|---|---|---|---|---|---|---|---|\n"+
		"| decode | cpu | 7 | 1 | 2 | 1 | 8 | 8.0 |\n| `em¦bed` | gpu, then big | 3 | 0 | 1 | 2 | 1 | 1.0 |\n\n`decode waits for em|bed: 1 slot gives 1/s, 8 would keep up with 8/s`\n")
	require.Contains(t, text, "\n- decode, item 4: crash: gone")
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
	staged := p
	staged.PassedOver, staged.Stages = []string{"cpu", "gpu"}, []gpumux.StageProgress{
		{Ladder: []string{"cpu"}, Succeeded: 5}, {Ladder: []string{"small"}, Running: 1}, {Ladder: []string{"cpu", "gpu"}}, {Ladder: []string{"cpu"}}}
	require.Equal(t, "a worker for pool gpu", WaitingFor(staged, ladder, false, false), "the first stage is over")
	staged.PassedOver = nil
	require.Empty(t, WaitingFor(staged, ladder, false, false))
	require.Equal(t, "a slot of pool small", WaitingFor(staged, ladder, true, false))
	staged.Stages[1].Running = 0
	require.Equal(t, "a slot of pool small", WaitingFor(staged, ladder, true, false), "none has an item yet: that of the map")
	p.Paused = true
	require.Empty(t, WaitingFor(p, ladder, false, false), "chunks in flight go on")
}
