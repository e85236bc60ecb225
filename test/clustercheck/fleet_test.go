//go:build linux

package clustercheck

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux/internal/test/rig"
)

const (
	// fleetSlots are the slots of each simulated worker, perProcess how many workers share a
	// process.
	fleetSlots = 8
	perProcess = 100
)

// number is a setting of this part: a variable of the environment or its default.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// Many workers, whose slots only wait: what they cost while idle, and a map that fills
// all of their slots. GPUMUX_FLEET is how many, GPUMUX_FLEET_SECONDS what an item takes,
// and GPUMUX_FLEET_CONTACT the contact of the workers' files in seconds.
func TestFleet(t *testing.T) {
	inCluster(t)
	workers, seconds := number(t, "GPUMUX_FLEET", 50), number(t, "GPUMUX_FLEET_SECONDS", 10)
	s := in("fleet", "fleet")
	empty := measure(t)
	began := time.Now()
	parts := fleetOf(t, s, workers)
	part := fmt.Sprintf("fleet of %d", workers)
	say := func(what string, took time.Duration, note string) {
		record(t, row{part: part + ", " + what, took: took, note: note})
		t.Logf("%s, %s, %.1f s: %s", part, what, took.Seconds(), note)
	}
	say("all serve", time.Since(began), "load "+loadAverage(t))

	// As long as a request for work stays open, and after as long without work, from when on
	// workers ask less.
	const window = time.Minute
	<-time.After(window)
	before := measure(t)
	<-time.After(window)
	say("idle", window, measure(t).since(before, empty, workers))

	listed := func(when string) {
		for _, words := range [][]string{{"workers", "--json"}, {"ls"}} {
			asked := time.Now()
			out := s.run(t, 0, words...)
			say(fmt.Sprintf("gpumux %s, %s", strings.Join(words, " "), when), time.Since(asked),
				fmt.Sprintf("%d lines, %d kB", strings.Count(out, "\n"), len(out)/1000))
		}
	}
	listed("idle")

	slots := workers * fleetSlots
	items := int64(2 * slots)
	before = measure(t)
	asked := requests(t)
	j := (&job{site: s, items: items, pool: "cpu"}).name("fleet")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := j.command(ctx, "map", "hold", "--pool", "cpu", "--id", j.id, "--range", fmt.Sprintf("0:%d", items),
		"--arg", fmt.Sprintf(`{"Seconds":%d}`, seconds), "--out", j.out)
	began = time.Now()
	output := filepath.Join(c.folder, "logs", "fleet-map.log")
	require.NoError(t, spawn(cmd, output))
	rig.Wait(t, func() bool { return count(t, parts) > 0 }, patience, 100*time.Millisecond, "a first item ends")
	listed("busy")
	err := cmd.Wait()
	took := time.Since(began)
	text, _ := os.ReadFile(output)
	require.NoError(t, err, "%s", text)
	say("map", took, measure(t).since(before, empty, workers))
	r, note := ran(t, parts, began, items, slots)
	say("items", took, note)
	say("histories", 0, histories(t, s, j.id))
	say("store", 0, kinds(asked, requests(t)))
	r.part, r.took = part, took
	report = append(report, r)
	require.NoError(t, r.err)

	began = time.Now()
	for _, p := range parts {
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, p := range parts {
		require.NoError(t, p.end(syscall.SIGTERM))
	}
	say("all stopped", time.Since(began), "")
}

// fleetOf starts the workers of a fleet in a few processes of package workers' test.
func fleetOf(t *testing.T, s site, workers int) (parts []*process) {
	t.Helper()
	folder := filepath.Join(c.dir, "fleet")
	require.NoError(t, os.Mkdir(folder, 0o755))
	per := min(perProcess, (workers+1)/2)
	for first := 0; first < workers; first += per {
		part, err := json.Marshal(map[string]any{"First": first, "Workers": min(per, workers-first), "Slots": fleetSlots,
			"Contact": fmt.Sprint(number(t, "GPUMUX_FLEET_CONTACT", 7), "s"), "Folder": folder, "Store": s.store})
		require.NoError(t, err)
		p := c.add(&process{name: fmt.Sprintf("fleet-%d", first), argv: []string{c.program("fleet.test"), "-test.run", "^TestFleet$", "-test.timeout", "0"},
			env: append(s.env(), "GPUMUX_FLEET_PART="+string(part)),
			ready: func(context.Context) error {
				_, err := os.Stat(filepath.Join(folder, fmt.Sprint("ready-", first)))
				return err
			}})
		parts = append(parts, p)
		require.NoError(t, p.start())
	}
	return parts
}

// run is a line of a part's runs.
type run struct{ index, begin, end int64 }

// runsOf are the runs of items that have ended, in order of their beginning.
func runsOf(t *testing.T, parts []*process) (all []run) {
	t.Helper()
	for _, p := range parts {
		file, err := os.Open(filepath.Join(c.dir, "fleet", strings.Replace(p.name, "fleet-", "runs-", 1)))
		require.NoError(t, err)
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var r run
			if _, err := fmt.Sscan(lines.Text(), &r.index, &r.begin, &r.end); err == nil {
				all = append(all, r)
			}
		}
		require.NoError(t, file.Close())
	}
	slices.SortFunc(all, func(a, b run) int { return cmp.Compare(a.begin, b.begin) })
	return all
}

func count(t *testing.T, parts []*process) int { t.Helper(); return len(runsOf(t, parts)) }

// ran says how the slots were used by a map that has ended, and what is wrong with it.
func ran(t *testing.T, parts []*process, began time.Time, items int64, slots int) (r row, note string) {
	t.Helper()
	all := runsOf(t, parts)
	seen, busy, last := map[int64]bool{}, int64(0), int64(0)
	var at []run // +1 and -1 in order
	for _, one := range all {
		if seen[one.index] {
			r.twice++
		}
		seen[one.index] = true
		busy += one.end - one.begin
		last = max(last, one.end)
		at = append(at, run{index: 1, begin: one.begin}, run{index: -1, begin: one.end})
	}
	slices.SortStableFunc(at, func(a, b run) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.index, b.index)) })
	running, largest, half, full := int64(0), int64(0), int64(0), int64(0)
	for _, each := range at {
		if running += each.index; running > largest {
			largest, full = running, each.begin
		}
		if half == 0 && running >= int64(slots)/2 {
			half = each.begin
		}
	}
	r.items = items
	if int64(len(seen)) != items {
		r.err = fmt.Errorf("%d items of %d ran", len(seen), items)
	}
	after := func(milli int64) string {
		if milli == 0 {
			return "never"
		}
		return fmt.Sprintf("after %.1f s", float64(milli-began.UnixMilli())/1000)
	}
	return r, fmt.Sprintf("first item %s, half of the slots %s, most (%d of %d) %s, last item ended %s, utilisation %.0f %%",
		after(all[0].begin), after(half), largest, slots, after(full), after(last), 100*float64(busy)/float64(slots)/float64(last-began.UnixMilli()))
}

// histories says how long the histories of a map are.
func histories(t *testing.T, s site, id string) string {
	t.Helper()
	server, err := client.Dial(client.Options{HostPort: s.address, Namespace: s.namespace, Logger: silent})
	require.NoError(t, err)
	defer server.Close()
	listed, err := server.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: fmt.Sprintf("WorkflowId STARTS_WITH %q", id)})
	require.NoError(t, err)
	var events, bytes, longest int64
	var spans []run
	for _, e := range listed.GetExecutions() {
		got, err := server.DescribeWorkflowExecution(t.Context(), e.GetExecution().GetWorkflowId(), e.GetExecution().GetRunId())
		require.NoError(t, err)
		info := got.GetWorkflowExecutionInfo()
		events, bytes, longest = events+info.GetHistoryLength(), bytes+info.GetHistorySizeBytes(), max(longest, info.GetHistoryLength())
		spans = append(spans, run{begin: info.GetStartTime().AsTime().UnixMilli(), end: info.GetCloseTime().AsTime().UnixMilli()})
	}
	beside := 0
	for _, a := range spans {
		n := 0
		for _, b := range spans {
			if b.begin <= a.begin && a.begin < b.end {
				n++
			}
		}
		beside = max(beside, n)
	}
	return fmt.Sprintf("%d workflows, at most %d at once, %d events, %d kB, the longest %d events", len(spans), beside, events, bytes/1000, longest)
}
