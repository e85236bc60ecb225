//go:build linux

package clustercheck

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/columns"
)

// Fifty maps from five clients, all on the server at once.
func TestLoad_ManyMaps(t *testing.T) {
	inCluster(t)
	workers(t)
	var all []*job
	var clients sync.WaitGroup
	began := time.Now()
	for client := range 5 {
		var ours []*job
		for i := range 10 {
			j := &job{site: in("default", "main"), first: int64(len(all)+i) * 1000, items: 1000, pool: "cpu", log: filepath.Join(c.dir, "many.log")}
			ours = append(ours, j.name(fmt.Sprintf("many-%d-%d", client, i)))
		}
		all = append(all, ours...)
		clients.Go(func() {
			// All are started, then each is fetched by the same command.
			for _, more := range []string{"--detach", "--out"} {
				for _, j := range ours {
					words := append(j.words(), more)
					if more == "--out" {
						words = append(words, j.out)
					}
					cmd := j.command(t.Context(), words...)
					output, _ := cmd.CombinedOutput()
					j.code, j.output, j.took = cmd.ProcessState.ExitCode(), string(output), time.Since(began)
				}
			}
		})
	}
	clients.Wait()
	judge(t, "50 maps from 5 clients", 0, "", all...)
}

// Small maps beside a large one, in the pool that it fills.
func TestLoad_SmallAndLarge(t *testing.T) {
	inCluster(t)
	workers(t)
	log := filepath.Join(c.dir, "beside.log")
	large := (&job{site: in("default", "main"), items: 400, seconds: 0.1, pool: "cpu", log: log}).begin(t, "large")
	large.runs(t, 4)
	small := make([]*job, 20)
	for i := range small {
		small[i] = &job{site: in("default", "main"), first: 1000 + 12*int64(i), items: 12, seconds: 0.1, pool: "cpu", log: log}
		small[i].begin(t, fmt.Sprintf("small-%02d", i))
	}
	times := make([]time.Duration, len(small))
	for i, j := range small {
		<-j.ended
		times[i] = j.took
	}
	slices.Sort(times)
	judge(t, "20 small maps beside a large one", 0, fmt.Sprintf("small ones took %.1f to %.1f s", times[0].Seconds(), times[19].Seconds()),
		append(small, large)...)
}

// holds are the maps that a bucket has results of.
func holds(t *testing.T, bucket string) (ids []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(c.bucket(bucket), "maps/*"))
	require.NoError(t, err)
	for _, folder := range found {
		ids = append(ids, filepath.Base(folder))
	}
	return ids
}

// Two teams at once, each with a namespace, a store and a worker of its own.
func TestLoad_TwoNamespaces(t *testing.T) {
	inCluster(t)
	var jobs []*job
	for i, team := range []string{"blue", "green"} {
		require.NoError(t, in(team, team).worker("worker-"+team, atWorkers+4+i, "").start())
		// More than travels inside the workflow.
		jobs = append(jobs, (&job{site: in(team, team), items: 20_000, pool: "cpu"}).begin(t, "of-"+team))
	}
	judge(t, "two namespaces on two stores", 0, "", jobs...)
	for _, team := range []string{"blue", "green"} {
		require.Equal(t, []string{"of-" + team}, holds(t, team))
		require.NoError(t, c.processes["worker-"+team].end(syscall.SIGTERM))
	}
}

// A table in the store is read there, by a worker.
func TestLoad_Table(t *testing.T) {
	inCluster(t)
	workers(t)
	require.NoError(t, os.MkdirAll(filepath.Join(c.bucket("main"), "in"), 0o755))
	file, err := os.Create(filepath.Join(c.bucket("main"), "in/table.parquet"))
	require.NoError(t, err)
	defer file.Close()
	to := columns.NewWriter(file, columns.Parquet)
	item := func(index int64) string { return fmt.Sprintf(`{"size":%d,"text":"row %d"}`, index, index) }
	for i := range int64(20_000) {
		require.NoError(t, to.Add(fmt.Appendf(nil, `{"index":%d,"value":%s}`, i, item(i))))
	}
	_, err = to.Finish()
	require.NoError(t, err)
	judge(t, "a table in S3", 0, "", (&job{site: in("default", "main"), items: 20_000, pool: "cpu", value: item,
		args: []string{"--in", "s3://main/in/table.parquet?" + strings.SplitN(in("default", "main").store, "?", 2)[1], "--columns", "size,text"},
	}).begin(t, "table"))
}

// A million items over S3, and what the store was asked.
func TestLoad_Million(t *testing.T) {
	inCluster(t)
	workers(t)
	before := requests(t)
	j := (&job{site: in("default", "main"), items: 1_000_000, pool: "cpu"}).begin(t, "million")
	<-j.ended
	judge(t, "a million items over S3", 0, kinds(before, requests(t)), j)
}

// kinds says what the store was asked between two counts.
func kinds(before, after map[string]int) string {
	var all []string
	for kind, count := range after {
		if count -= before[kind]; count > 0 {
			all = append(all, fmt.Sprintf("%d %s", count, kind))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// requests counts what the S3 server was asked so far, by its log.
func requests(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "requests"))
	require.NoError(t, err)
	count := map[string]int{}
	for _, found := range regexp.MustCompile(`\bs3_(\w+)`).FindAllStringSubmatch(string(text), -1) {
		count[found[1]]++
	}
	return count
}
