package store

import (
	"fmt"
	"io"

	"github.com/gpumux/gpumux"
)

const (
	// spaceStep is how many bytes are written between two looks at the disk.
	spaceStep = 64 << 20
	// spaceLeft is what a copy leaves of the disk for others.
	spaceLeft = 256 << 20
)

// spaceGuard ends a copy before it takes the last of the disk, as a small archive that holds a very large text would.
type spaceGuard struct {
	w   io.Writer
	dir string
	// written is how many bytes went through, looked how many by the last look at the disk.
	written, looked int64
}

func (g *spaceGuard) Write(data []byte) (int, error) {
	if g.written == 0 || g.written-g.looked >= spaceStep {
		g.looked = g.written
		if free, known := freeSpace(g.dir); known && free < spaceLeft {
			return 0, fmt.Errorf("%s has only %s left after %s were written", g.dir, gpumux.Size(free), gpumux.Size(g.written))
		}
	}
	n, err := g.w.Write(data)
	g.written += int64(n)
	return n, err
}
