package workers

import (
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/workers/config"
)

// testPool has n slots on each device, whose processes are whatever the test says.
func testPool(n int, devices ...string) (*pool.Pool, []*pool.Seat, []*gputest.Slot) {
	var places []*pool.Seat
	var fakes []*gputest.Slot
	for _, d := range devices {
		for range n {
			f := gputest.NewSlot()
			fakes = append(fakes, f)
			places = append(places, &pool.Seat{Slot: f, Group: d})
		}
	}
	return pool.NewLedger().New("gpu", places), places, fakes
}

// tasksIn are tasks of a folder's tasks.py.
func tasksIn(dir string, names ...string) *config.Catalog {
	tasks := map[string]launch.Task{}
	for _, name := range names {
		tasks[name] = launch.Task{Name: name, Python: "tasks.py:" + name, Dir: dir}
	}
	return config.NewCatalog(tasks)
}
