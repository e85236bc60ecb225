//go:build linux

package clustercheck

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// usage is what the cluster's processes have used at a moment, by name; the parts of a
// fleet are one.
type usage struct {
	at       time.Time
	cpu      map[string]time.Duration
	memory   map[string]int64
	requests map[string]float64 // that the frontend answered, by operation
	pending  map[string]float64 // that are open
}

// kind is the name under which a process counts.
func (p *process) kind() string {
	if strings.HasPrefix(p.name, "fleet-") {
		return "workers"
	}
	return p.name
}

// measure reads what all processes that run have used.
func measure(t *testing.T) usage {
	t.Helper()
	u := usage{at: time.Now(), cpu: map[string]time.Duration{}, memory: map[string]int64{}, requests: map[string]float64{}, pending: map[string]float64{}}
	children := map[int][]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, stat := range stats {
		pid, fields := statOf(stat)
		if fields != nil {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], pid)
		}
	}
	for _, p := range c.order {
		if !p.alive() {
			continue
		}
		for _, pid := range append(children[p.cmd.Process.Pid], p.cmd.Process.Pid) {
			_, fields := statOf(fmt.Sprintf("/proc/%d/stat", pid))
			if fields == nil {
				continue // it has just ended
			}
			// User and system time, and that of children that have ended, in hundredths.
			for _, i := range []int{11, 12, 13, 14} {
				ticks, _ := strconv.ParseInt(fields[i], 10, 64)
				u.cpu[p.kind()] += time.Duration(ticks) * 10 * time.Millisecond
			}
			u.memory[p.kind()] += proportional(pid)
		}
	}
	answer, err := http.Get("http://" + at(atFrontend) + ":9090/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	for _, found := range sample.FindAllSubmatch(text, -1) {
		value, err := strconv.ParseFloat(string(found[3]), 64)
		require.NoError(t, err)
		requests := u.requests
		if string(found[1]) == "service_pending_requests" {
			requests = u.pending
		}
		requests[string(found[2])] += value
	}
	return u
}

// sample is a sample of the frontend that usage counts.
var sample = regexp.MustCompile(`(?m)^(service_requests|service_pending_requests)\{.*?\boperation="(\w+)".*\} (\S+)$`)

// statOf are the fields of a process's stat behind its name, nil if there is none.
func statOf(path string) (pid int, fields []string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, nil
	}
	head, rest, _ := strings.Cut(string(text), "(")
	pid, _ = strconv.Atoi(strings.TrimSpace(head))
	return pid, strings.Fields(rest[strings.LastIndex(rest, ")")+1:])
}

// proportional is the memory of a process, with its share of what it shares.
func proportional(pid int) (bytes int64) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, is := strings.CutPrefix(lines.Text(), "Pss:"); is {
			kB, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kB << 10
		}
	}
	return 0
}

// since says what was used since before, and per worker what memory was added since
// empty.
func (u usage) since(before, empty usage, workers int) string {
	var all []string
	took := u.at.Sub(before.at).Seconds()
	for _, name := range slices.Sorted(maps.Keys(u.cpu)) {
		if cpu := (u.cpu[name] - before.cpu[name]).Seconds(); cpu > 0.001*took {
			all = append(all, fmt.Sprintf("%s %.1f %% of a core, %d MB (%+.2f MB a worker)", name, 100*cpu/took, u.memory[name]>>20,
				float64(u.memory[name]-empty.memory[name])/(1<<20)/float64(workers)))
		}
	}
	total := 0.0
	var asked []string
	for _, name := range slices.Sorted(maps.Keys(u.requests)) {
		rate := (u.requests[name] - before.requests[name]) / took / float64(workers)
		if total += rate; rate >= 0.01 {
			asked = append(asked, fmt.Sprintf("%s %.2f", name, rate))
		}
	}
	all = append(all, fmt.Sprintf("requests a second and worker %.2f (%s)", total, strings.Join(asked, ", ")))
	for _, name := range slices.Sorted(maps.Keys(u.pending)) {
		if u.pending[name] >= 1 {
			all = append(all, fmt.Sprintf("%.1f %s open a worker", u.pending[name]/float64(workers), name))
		}
	}
	return strings.Join(all, "; ")
}

// loadAverage is that of the last minute.
func loadAverage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	require.NoError(t, err)
	first, _, _ := bytes.Cut(text, []byte(" "))
	return string(first)
}
