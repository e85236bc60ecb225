package local

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
)

const (
	// roomEvery is how often the disk of the state is looked at, leastRoom below how many free bytes nothing can be written soon.
	roomEvery = 2 * time.Second
	leastRoom = 1 << 20
)

// tellRoom says when the disk of a session's state fills up, since server and store then wait without a word, and when there is room
// again. It ends with the session's context.
func (s *Session) tellRoom() {
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	full := false
	for {
		if free, ok := freeBytes(s.Data); ok && (free < leastRoom) != full {
			if full = !full; full {
				s.say("the disk of %s is full (%s left): the map waits until there is room", s.Data, gpumux.Size(free))
			} else {
				s.say("there is room on the disk of %s again", s.Data)
			}
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// freeBytes is what this user may still write in a folder.
func freeBytes(folder string) (int64, bool) {
	var disk unix.Statfs_t
	if unix.Statfs(folder, &disk) != nil {
		return 0, false
	}
	return int64(disk.Bavail) * int64(disk.Bsize), true
}
