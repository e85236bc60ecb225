package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

// staged are two stages, the second of which holds the first one up.
func staged() []gpumux.StageProgress {
	return []gpumux.StageProgress{
		{Task: "decode", Ladder: []string{"cpu"}, Succeeded: 5100, Failed: 12, Running: 64, Waiting: 4824, InFlight: 4, Slots: 16,
			ItemTime: gpumux.Duration(40 * time.Millisecond), Busy: gpumux.Duration(204 * time.Second)},
		{Task: "embed:images", Ladder: []string{"gpu", "big"}, Succeeded: 4000, Running: 200, Waiting: 900, InFlight: 2, Slots: 2,
			ItemTime: gpumux.Duration(25 * time.Millisecond), Busy: gpumux.Duration(100 * time.Second)},
	}
}

func TestBar_Stages(t *testing.T) {
	now := noon
	var plain, screen bytes.Buffer
	b := &Bar{console: NewConsole(&plain), now: func() time.Time { return now }}
	p := gpumux.Progress{Task: "decode > embed:images", Phase: gpumux.PhaseRunning, Items: 10_000, InFlight: 6, Stages: staged()}
	for range 20 {
		p.Succeeded += 200
		b.Show(p)
		now = now.Add(500 * time.Millisecond)
	}
	golden(t, "plain_stages", plain.String())

	b = &Bar{console: &Console{to: &screen, visible: Visible(&screen), fd: 1 << 20}, now: b.now}
	b.Show(p)
	b.console.Write([]byte("a line\n"))
	golden(t, "bar_stages", strings.NewReplacer("\r", "CR", "\x1b", "ESC").Replace(screen.String())+"\n")
	screen.Reset()
	b.console.Close()
	require.Equal(t, "\r\x1b[K"+strings.Repeat("\x1b[A\x1b[K", 3), screen.String(), "a line for the map, two stages and advice")
}

// A first failure and each cause name the stage.
func TestDetail_Stages(t *testing.T) {
	failed := crashed(7)
	failed.Fault.Task = "decode"
	require.Equal(t, "decode, item 7: ", Failure(failed, true)[:16])
	unknown := staged()[1]
	unknown.Slots, unknown.ItemTime = 0, 0
	for name, stages := range map[string][]gpumux.StageProgress{"stages": staged(), "stages_begun": {staged()[0], unknown}} {
		var b bytes.Buffer
		Detail(&b, &starter.Detail{MapInfo: starter.MapInfo{ID: "both", Task: "decode > embed:images", Stages: stages, Failed: 1}},
			[]starter.Cause{{Kind: failed.Fault.Kind, Count: 1, Example: failed}}, "", noon)
		_, table, _ := strings.Cut(b.String(), "\n\n")
		golden(t, name, table)
	}
}
