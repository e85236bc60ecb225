//go:build linux

package clustercheck

import (
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// A million items over S3.
func TestLoad_Million(t *testing.T) {
	inCluster(t)
	workers(t)
	judge(t, "a million items over S3", 0, "", (&job{site: in("default", "main"), items: 1_000_000, pool: "cpu"}).begin(t, "million"))
}
