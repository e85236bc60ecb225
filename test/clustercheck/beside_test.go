//go:build linux

package clustercheck

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/cmd/gpumux/devserver"
	"github.com/gpumux/gpumux/test/devservertest"
)

// The same small loads on the cluster and on the embedded server, in turns: two workers
// of one slot each, and one store.
func TestBeside(t *testing.T) {
	inCluster(t)
	embedded := devservertest.Start(t, devserver.Options{Data: filepath.Join(c.dir, "embedded"), Headless: true})
	sites := [2]site{in("beside", "beside"), in("default", "beside")}
	sites[1].address = embedded.Address()
	names := [2]string{"cluster", "embedded"}
	for i, s := range sites {
		for n := range 2 {
			p := s.worker(fmt.Sprintf("worker-%s-%d", names[i], n), atWorkers+8+2*i+n, "")
			require.NoError(t, p.start())
			defer func() { require.NoError(t, p.end(syscall.SIGTERM)) }()
		}
	}
	for _, load := range []struct {
		maps, items int64
		seconds     float64
	}{{20, 60, 0.05}, {1, 20_000, 0.0001}} {
		part := fmt.Sprintf("%d x %d items of %g ms", load.maps, load.items, 1000*load.seconds)
		const turns = 3
		var took [2][]time.Duration
		for turn := range turns {
			for i, s := range sites {
				jobs := make([]*job, load.maps)
				log := filepath.Join(c.dir, fmt.Sprintf("beside-%d-%s.log", load.maps, names[i])) // one for all, and for their processes
				for m := range load.maps {
					jobs[m] = &job{site: s, first: (int64(turn)*load.maps + m) * load.items, items: load.items, seconds: load.seconds, pool: "cpu", log: log}
					jobs[m].begin(t, fmt.Sprintf("beside-%d-%s-%d-%d", load.maps, names[i], turn, m))
				}
				judge(t, fmt.Sprintf("%s, %s, turn %d", part, names[i], turn+1), 0, "load "+loadAverage(t), jobs...)
				took[i] = append(took[i], report[len(report)-1].took)
			}
		}
		for i := range took {
			slices.Sort(took[i])
		}
		on, beside := took[0][turns/2], took[1][turns/2]
		note := fmt.Sprintf("embedded %.1f s, cluster %.1f s: %.2f times as long", beside.Seconds(), on.Seconds(), on.Seconds()/beside.Seconds())
		record(t, row{part: part + ", medians", took: on, note: note})
	}
}
