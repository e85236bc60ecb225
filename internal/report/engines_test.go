package report

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

const (
	engineOne = `{"text":"a","deep":{"n":[1]},"running":60,"waiting":8,"prompt_tokens_per_second":1200.7,"generation_tokens_per_second":800,"cache_hits":0.4,"vllm:x":1}`
	engineTwo = `{"running":4,"prompt_tokens_per_second":40,"generation_tokens_per_second":12.5}`
)

func TestEngines(t *testing.T) {
	engines := func(reports ...string) string {
		var items []gpumux.RunningItem
		for _, report := range reports {
			items = append(items, gpumux.RunningItem{Progress: report})
		}
		return Engines(items...)
	}
	require.Equal(t, "1,200 tokens/s in, 800 out, 60 running, 8 waiting, cache 40%", engines(engineOne))
	require.Equal(t, "40 tokens/s in, 12 out, 4 running", engines(engineTwo, "", `{"running":1}`, `0.5`, `{"epoch":3}`, engineTwo[:20]))
	require.Equal(t, "1,240 tokens/s in, 812 out, 64 running, 8 waiting, cache 40%", engines(engineTwo, engineOne))
	for _, report := range []string{"", `"text"`, `{"running":8}`, `{"at":3}`} {
		require.Empty(t, engines(report), report)
	}
	starts := gpumux.RunningItem{Index: -1}
	require.Equal(t, "waits for the engine to start", Engines(starts))
	require.Equal(t, "40 tokens/s in, 12 out, 4 running", Engines(starts, gpumux.RunningItem{Progress: engineTwo}))
}

func TestBar_Engines(t *testing.T) {
	now := noon
	b := &Bar{console: NewConsole(&bytes.Buffer{}), now: func() time.Time { return now }}
	p := gpumux.Progress{Task: "llm", Phase: gpumux.PhaseRunning, Items: 50000, Succeeded: 1, InFlight: 2}
	b.Show(p)
	now, p.Succeeded = now.Add(10*time.Second), 12000
	b.Say("9 tokens/s in")
	require.Regexp(t, `  12,000/50,000  32s left  [0-9.,]+/s  9 tokens/s in  2 in flight$`, b.line(p, 200))
	p.Paused = true
	require.NotContains(t, b.line(p, 200), "tokens")
}
