package starter

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"

	"github.com/gpumux/gpumux"
)

func made(m Map) string { id, _ := m.Identify(); return id }

func fingerprint(m Map) string { _, f := m.Identify(); return f }

func TestRegistry_NamesAQueueThatIsNotThatOfMaps(t *testing.T) {
	for queue, want := range map[string]string{gpumux.Queue: "", "gpumux.small": "gpumux.small"} {
		require.Equal(t, want, registry{}.read(&workflowpb.WorkflowExecutionInfo{TaskQueue: queue}).Queue)
	}
}

// The IDs of a release are those of the next: else a map given again after an upgrade
// would begin from nothing.
func TestIdentify_IsStable(t *testing.T) {
	in := gpumux.MapInput{Task: "sweep/embed.py:embed", Range: &gpumux.Range{End: 1000}, Ladder: []string{"gpu", "cpu"},
		Mode: gpumux.ModeFresh, Timeout: gpumux.Duration(time.Minute), Attempts: 2}
	require.Equal(t, "sweep-embed.py-embed-09f06f54b0b6", made(Map{Input: in}))
	require.Equal(t, "embed-83148019c174", made(Map{Input: gpumux.MapInput{Task: "embed"}, Scope: "/home/me", Spooled: &Spooled{Hash: "00ff"}}))
}

func TestIdentify_WhatCounts(t *testing.T) {
	base := gpumux.MapInput{Task: "embed", Items: []json.RawMessage{[]byte("1"), []byte("23")}}
	same := map[string]func(*gpumux.MapInput){
		"default ladder":   func(in *gpumux.MapInput) { in.Ladder = []string{"gpu"} },
		"default attempts": func(in *gpumux.MapInput) { in.Attempts = 1 },
		"window":           func(in *gpumux.MapInput) { in.Window = 7 },
		"chunk":            func(in *gpumux.MapInput) { in.Chunk = 7 },
		"priority":         func(in *gpumux.MapInput) { in.Priority, in.FairnessKey, in.FairnessWeight = 1, "me", 2 },
	}
	other := map[string]func(*gpumux.MapInput){
		"task":    func(in *gpumux.MapInput) { in.Task = "embedd" },
		"items":   func(in *gpumux.MapInput) { in.Items = []json.RawMessage{[]byte("12"), []byte("3")} },
		"ladder":  func(in *gpumux.MapInput) { in.Ladder = []string{"cpu"} },
		"mode":    func(in *gpumux.MapInput) { in.Mode = gpumux.ModeFresh },
		"timeout": func(in *gpumux.MapInput) { in.Timeout = 1 },
		"retryOn": func(in *gpumux.MapInput) { in.RetryOn = []string{"OSError"} },
	}
	id := made(Map{Input: base})
	for name, change := range same {
		in := base
		change(&in)
		require.Equal(t, id, made(Map{Input: in}), name)
	}
	for name, change := range other {
		in := base
		change(&in)
		require.NotEqual(t, id, made(Map{Input: in}), name)
	}
	require.NotEqual(t, id, made(Map{Input: base, Scope: "/elsewhere"}))
	table := Map{Input: gpumux.MapInput{Task: "embed", Source: "x.parquet"}}
	seen := map[string]bool{fingerprint(table): true}
	for _, columns := range [][]string{{"a"}, {"b"}, {"a", "b"}, {"b", "a"}} {
		table.Input.Columns = columns
		require.False(t, seen[fingerprint(table)], "other columns are other items")
		seen[fingerprint(table)] = true
	}
	require.Equal(t, id+"-a1b2c3", made(Map{Input: base, Edition: "a1b2c3"}), "maps of other editions of a task are found by the same beginning")
}

// Stages make a map of their own by their tasks, in this order, and by what each says for
// itself. Other code in later ones makes no other ID.
func TestIdentify_Stages(t *testing.T) {
	staged := func(edition string, stages ...gpumux.Stage) Map {
		return Map{Input: gpumux.MapInput{Stages: stages, Range: &gpumux.Range{End: 3}}, Edition: edition}
	}
	load, embed := gpumux.Stage{Task: "load", Ladder: []string{"cpu"}}, gpumux.Stage{Task: "embed"}
	both := staged("e1-e2", load, embed)
	require.Regexp(t, "^load-embed-[0-9a-f]{12}-e1$", made(both))
	require.Equal(t, made(both), made(staged("e1-e3", load, embed)))
	require.NotEqual(t, made(both), made(staged("e3-e2", load, embed)))
	require.NotEqual(t, fingerprint(both), fingerprint(staged("e1-e2", embed, load)), "the order counts")
	require.NotEqual(t, fingerprint(both), fingerprint(staged("e1-e2", load, embed, embed)))
	kept := load
	kept.Keep, kept.Chunk, kept.Backoff, kept.Edition = true, 3, 1, "e1"
	require.Equal(t, made(both), made(staged("e1-e2", kept, embed)))
	small := load
	small.Arg = []byte("1")
	require.NotEqual(t, fingerprint(both), fingerprint(staged("e1-e2", small, embed)))
	for name, change := range map[string]func(*gpumux.Stage){
		"ladder":   func(s *gpumux.Stage) { s.Ladder = []string{"cpu", "gpu"} },
		"mode":     func(s *gpumux.Stage) { s.Mode = gpumux.ModeFresh },
		"timeout":  func(s *gpumux.Stage) { s.Timeout = 1 },
		"attempts": func(s *gpumux.Stage) { s.Attempts = 2 },
		"retryOn":  func(s *gpumux.Stage) { s.RetryOn = []string{"OSError"} },
	} {
		other := load
		change(&other)
		require.NotEqual(t, made(both), made(staged("e1-e2", other, embed)), name)
		require.Equal(t, fingerprint(both), fingerprint(staged("e1-e2", other, embed)), name)
	}
}

func TestMap_ChangedStage(t *testing.T) {
	stages := Map{Input: gpumux.MapInput{Stages: []gpumux.Stage{{Task: "a"}, {Task: "b"}, {Task: "c"}}}}
	single := Map{Input: gpumux.MapInput{Task: "a"}}
	for _, c := range []struct {
		m          Map
		began, now string
		want       int
	}{
		{single, "", "e1", -1}, {single, "e1", "", -1}, {single, "e1", "e1", -1}, {single, "e1", "e2", 0},
		{stages, "", "1-2-3", -1}, {stages, "1-2-3", "1-2-3", -1}, {stages, "1-2-3", "4-2-3", 0}, {stages, "1-2-3", "1-4-5", 1},
		{stages, "1-2-3", "1-2-4", 2}, {stages, "1-2-3-r", "1-2-3-s", 3}, {stages, "1-2-3", "1-2-3-s", 3},
	} {
		c.m.Edition = c.now
		require.Equal(t, c.want, c.m.changed(c.began), "%+v", c)
		for _, status := range []Status{StatusRunning, StatusFailed, StatusCompleted} {
			h := &Handle{run: &run{MapInfo: MapInfo{Status: status}, Memo: memo{Edition: c.began}}}
			goesOn := c.want < 0 || status == StatusCompleted || status == StatusFailed && c.want > 0
			require.Equal(t, goesOn, h.CheckEdition(c.m) == nil, "%+v %s", c, status)
		}
	}
}

func TestClean(t *testing.T) {
	for task, want := range map[string]string{
		"embed": "embed", "a/b:c": "a-b-c", "../../etc": "etc", "ü": "map", "..": "map", strings.Repeat("x", 100): strings.Repeat("x", 60),
	} {
		require.Equal(t, want, clean(task))
		require.NoError(t, CheckID(clean(task)))
	}
	for _, bad := range []string{"", "a b", "a/b", "..", "ä", strings.Repeat("x", 901)} {
		require.Error(t, CheckID(bad), bad)
	}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		status Status
		named  bool
		want   Entry
	}{
		{"", false, EntryStarted}, {"", true, EntryStarted},
		{StatusRunning, false, EntryAttached}, {StatusRunning, true, EntryAttached},
		{StatusCompleted, false, EntryStarted}, {StatusCompleted, true, EntryFound},
		{StatusFailed, false, EntryContinued}, {StatusCanceled, true, EntryContinued}, {StatusTerminated, false, EntryContinued}, {StatusTimedOut, true, EntryContinued},
	} {
		var last *run
		if c.status != "" {
			last = &run{MapInfo: MapInfo{Status: c.status}}
		}
		entry, _ := decide(last, c.named)
		require.Equal(t, c.want, entry, "%+v", c)
	}
}
