package recovery

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// Each rule decides for the fault that it is about, in a chunk whose first items are
// done.
func TestRules(t *testing.T) {
	one := Chunk{Open: true, Index: 7, Position: 3, Under: 4}
	larger := one
	larger.Larger = true
	several := Chunk{Open: true, Index: 7, Position: 3, Under: 11}
	suspect := func(alone, tries int) History {
		return History{Suspects: map[int64]Suspect{7: {Alone: alone, Tries: tries, Memory: true}}}
	}
	died := func(kind gpumux.FaultKind) gpumux.Fault { return gpumux.Fault{Kind: kind, Op: "run"} }
	alone := func(kind gpumux.FaultKind) gpumux.Fault { return gpumux.Fault{Kind: kind, Op: "run", Alone: true} }
	start := func(kind gpumux.FaultKind) gpumux.Fault { return gpumux.Fault{Kind: kind, Op: "start"} }
	together := gpumux.Fault{Kind: gpumux.FaultCrash, Op: "run", Batch: 8, Concurrent: true}
	cases := map[string]struct {
		before History
		fault  gpumux.Fault
		chunk  Chunk
		rule   int
		index  int64
	}{
		"edition":                        {fault: gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Edition: "b"}, chunk: one, rule: 0, index: -1},
		"unknown task":                   {fault: start(gpumux.FaultBadInput), chunk: one, rule: 1, index: -1},
		"sick device":                    {fault: gpumux.Fault{Kind: gpumux.FaultDeviceLost, Op: "run", Blameless: true}, chunk: one, rule: 2, index: -1},
		"sick device for minutes":        {before: History{Blameless: 29}, fault: gpumux.Fault{Kind: gpumux.FaultDeviceLost, Op: "run", Blameless: true, Alone: true}, chunk: one, rule: 12, index: 7},
		"host without files for a start": {before: History{Blameless: 29}, fault: gpumux.Fault{Kind: gpumux.FaultCrash, Op: "start", Blameless: true}, chunk: one, rule: 3, index: -1},
		"no start":                       {before: History{Starts: 3}, fault: start(gpumux.FaultCrash), chunk: one, rule: 3, index: -1},
		"no start, slow":                 {before: History{Starts: 1}, fault: start(gpumux.FaultTimeout), chunk: one, rule: 5, index: -1},
		"no start, five times":           {before: History{Starts: 4}, fault: start(gpumux.FaultCrash), chunk: larger, rule: 5, index: -1},
		"no start within the budget":     {fault: start(gpumux.FaultBudget), chunk: larger, rule: 3, index: -1},
		"none in the slot":               {fault: gpumux.Fault{Kind: gpumux.FaultBudget, Op: "start", Again: true}, chunk: one, rule: 5, index: -1},
		"no start on a full host":        {before: History{Starts: 3}, fault: start(gpumux.FaultHostOOM), chunk: larger, rule: 3, index: -1},
		"no start for memory":            {before: History{Starts: 1}, fault: start(gpumux.FaultDeviceOOM), chunk: larger, rule: 4, index: -1},
		"no start for memory, one pool":  {before: History{Starts: 1}, fault: start(gpumux.FaultDeviceOOM), chunk: one, rule: 5, index: -1},
		"all have results":               {fault: died(gpumux.FaultCrash), chunk: Chunk{Larger: true}, rule: 6, index: -1},
		"beside others, once":            {fault: together, chunk: several, rule: 7, index: 7},
		"beside others, twice":           {before: History{Under: 9}, fault: together, chunk: several, rule: 8, index: 7},
		"beside others, other ones":      {before: History{Under: 3}, fault: together, chunk: several, rule: 7, index: 7},
		"micro-batch":                    {fault: gpumux.Fault{Kind: gpumux.FaultDeviceOOM, Op: "run", Batch: 8, Alone: true}, chunk: several, rule: 9, index: 7},
		"reaches all":                    {fault: gpumux.Fault{Kind: gpumux.FaultCrash, Op: "run", Wide: true}, chunk: one, rule: 10, index: 7},
		"reaches all, once alone":        {fault: gpumux.Fault{Kind: gpumux.FaultCrash, Op: "run", Wide: true, Alone: true}, chunk: one, rule: 10, index: 7},
		"reaches all, alone twice":       {before: suspect(1, 2), fault: gpumux.Fault{Kind: gpumux.FaultCrash, Op: "run", Wide: true, Alone: true}, chunk: one, rule: 14, index: 7},
		"memory alone":                   {fault: alone(gpumux.FaultBudget), chunk: larger, rule: 11, index: 7},
		"memory after others":            {fault: died(gpumux.FaultBudget), chunk: larger, rule: 12, index: 7},
		"crash alone":                    {before: suspect(0, 1), fault: alone(gpumux.FaultCrash), chunk: one, rule: 12, index: 7},
		"memory alone twice":             {before: suspect(1, 2), fault: alone(gpumux.FaultDeviceOOM), chunk: larger, rule: 13, index: 7},
		"memory alone twice, one pool":   {before: suspect(1, 2), fault: alone(gpumux.FaultDeviceOOM), chunk: one, rule: 14, index: 7},
		"crash alone twice":              {before: suspect(1, 2), fault: alone(gpumux.FaultCrash), chunk: larger, rule: 14, index: 7},
	}
	tested := map[int]bool{}
	for name, c := range cases {
		d := c.before.Next(&c.fault, c.chunk)
		require.Equal(t, Decision{rules[c.rule].Step, c.index, rules[c.rule].Then, d.Suspect}, d, name)
		tested[c.rule] = true
	}
	require.Len(t, tested, len(rules), "a rule is not tested")
}

// The page for people has these rules, in this order.
func TestRules_AreThoseOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/faults.md")
	require.NoError(t, err)
	table := ""
	for _, r := range rules {
		table += "| " + r.When + " | " + r.Then + " |\n"
	}
	require.Contains(t, string(page), table)
}

// A device that fails is waited for often, but not for ever, and each finished item
// begins the count anew.
func TestHistory_WaitsForALimitedTime(t *testing.T) {
	var h History
	fault, chunk := gpumux.Fault{Kind: gpumux.FaultDeviceLost, Op: "run", Blameless: true}, Chunk{Open: true}
	for range MaxBlameless - 1 {
		require.Equal(t, Wait, h.Next(&fault, chunk).Step)
	}
	require.Equal(t, Rerun, h.Next(&fault, chunk).Step)
	h.Ran(0, false)
	require.Equal(t, Rerun, h.Next(&fault, chunk).Step, "what is not stored runs again before each fault")
	h.Ran(0, true)
	require.Equal(t, Wait, h.Next(&fault, chunk).Step)
	require.Equal(t, 1, h.Clone().Blameless)
}
