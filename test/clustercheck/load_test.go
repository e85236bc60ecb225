//go:build linux

package clustercheck

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"
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
			j := &job{site: in("default"), first: int64(len(all)+i) * 1000, items: 1000, pool: "cpu", log: filepath.Join(c.dir, "many.log")}
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

// A million items over S3.
func TestLoad_Million(t *testing.T) {
	inCluster(t)
	workers(t)
	judge(t, "a million items over S3", 0, "", (&job{site: in("default"), items: 1_000_000, pool: "cpu"}).begin(t, "million"))
}
