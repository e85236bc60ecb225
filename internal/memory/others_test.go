package memory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/workers/config"
)

// What is not of this worker's processes is of others, also where they are not listed.
func TestOthers_LeaveRoomForASlotOrNot(t *testing.T) {
	machine := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{Total: 24 << 30, Free: 24 << 30}, {Total: 24 << 30, Free: 24 << 30}}})
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: machine.Library})
	require.NoError(t, err)
	defer inventory.Close()
	pool := func(name string, memory gpumux.Size) config.Pool {
		return config.Pool{Name: name, Devices: gpu.Selection{"0"}, Slots: 2, Memory: memory}
	}
	e, _ := enforcer(t, inventory, pool("small", 1<<30), pool("large", 4<<30), pool("free", 0))
	uuid := inventory.Devices()[0].UUID
	ours, theirs := sleeper(t), sleeper(t)
	followed := e.watch.Follow(uuid, ours, 0, func(session.Over) {})
	defer followed.Close()
	group := e.placements[0].Groups[0]
	machine.Allocate(ours, uuid, 10<<30)
	says := func(pool, want string, full bool) {
		t.Helper()
		text, isFull := e.Others(pool, group)
		require.Equal(t, want, text)
		require.Equal(t, full, isFull)
	}
	says("large", "", false)
	machine.Allocate(theirs, uuid, 8<<30)
	for _, name := range []string{"small", "large", "free"} {
		says(name, fmt.Sprintf("others hold 8GiB of GPU 0 (process %d 8GiB)", theirs), false)
	}
	machine.Allocate(ours, uuid, 1<<30)
	machine.Allocate(theirs, uuid, 22<<30)
	says("small", fmt.Sprintf("others hold 22GiB of GPU 0 (process %d 22GiB)", theirs), false)
	says("free", fmt.Sprintf("others hold 22GiB of GPU 0 (process %d 22GiB)", theirs), false)
	says("large", fmt.Sprintf("others hold 22GiB of GPU 0 (process %d 22GiB) and leave less than the budget of a slot, 4GiB", theirs), true)
	machine.Allocate(theirs, uuid, 0)
	machine.Update(func(s *gputest.State) { s.GPUs[0].Free = 2 << 30 }) // a container does not see whose it is
	says("large", fmt.Sprintf("others hold 22GiB of GPU 0 (process %d) and leave less than the budget of a slot, 4GiB", theirs), true)
	e.Tried(uuid, false)
	says("large", "", false)
}
