package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers"
)

// Whoever reads of a failure sees which item it was: in the map's error, in the results
// and in the worker's log, there once.
func TestFaults_NameTheirItem(t *testing.T) {
	s := newStage(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "bad.py"), []byte(`
import os, time
def bad(item):
    if item["how"] == "raise": raise ValueError("no")
    if item["how"] == "die": os._exit(3)
    if item["how"] == "hang": time.sleep(1000)
    return 1
`), 0o644))
	core, logged := observer.New(zap.WarnLevel)
	w, err := workers.New(s.config, workers.Options{Client: s.Client, Runtime: t.TempDir(), StopTimeout: time.Second, Log: workers.Zap(zap.New(core))})
	require.NoError(t, err)
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, w.Stop(t.Context())) })
	list := func(hows ...string) []json.RawMessage {
		var items []json.RawMessage
		for _, how := range hows {
			items = append(items, json.RawMessage(`{"how":"`+how+`"}`))
		}
		return items
	}
	over := func(items []json.RawMessage) starter.Map {
		return starter.Map{Input: gpumux.MapInput{Task: "bad:bad", Ladder: []string{"cpu"}, Items: items, Timeout: gpumux.Duration(2 * time.Second)}}
	}

	fast := over(list("fine", "raise"))
	fast.Input.MaxFailures, fast.ID = "0", "fast"
	_, err = s.start(fast).Wait(t.Context())
	var failed *starter.EndedError
	require.ErrorAs(t, err, &failed)
	require.EqualValues(t, 1, *failed.Fault.Index)
	require.ErrorContains(t, err, `map fast failed at item 1 = {"how":"raise"}: task_error`)

	m := over(list("fine", "raise", "die", "hang", "fine"))
	m.ID = "all"
	h := s.start(m)
	_, err = h.Wait(t.Context())
	require.NoError(t, err)
	results := s.results(h)
	for i, how := range []string{"", "raise", "die", "hang", ""} {
		if how == "" {
			require.Nil(t, results[i].Fault)
			continue
		}
		require.Equal(t, `{"how":"`+how+`"}`, results[i].Fault.Item)
		require.Nil(t, results[i].Fault.Index, "the result has it")
	}
	require.Contains(t, results[3].Fault.Traceback, `in bad`, "where it hangs")

	told, processes := map[int64][]string{}, map[any]bool{}
	for _, line := range logged.All() {
		fields := line.ContextMap()
		if fields["map"] != "all" {
			continue
		}
		index := fields["index"].(int64)
		require.Equal(t, results[index].Fault.Item, fields["item"])
		told[index] = append(told[index], line.Message)
		if index > 1 {
			processes[fields["pid"]] = true
		}
	}
	require.Len(t, told, 3)
	require.Equal(t, []string{"item failed"}, told[1])
	for _, dead := range []int64{2, 3} { // it ends a process beside others, then alone until it is judged: each of these is a fault of its own
		last := told[dead][len(told[dead])-1]
		require.Equal(t, "item ended its process; it is recorded as failed", last)
		for _, earlier := range told[dead][:len(told[dead])-1] {
			require.Contains(t, earlier, "item ended its process; it is tried again")
		}
	}
	require.Len(t, processes, len(told[2])+len(told[3]), "each death is told once")
	for _, line := range logged.All() {
		require.NotContains(t, line.Message, "task process failed", "a second line about the same fault")
	}
}
