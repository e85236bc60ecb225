package files

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpumux/gpumux/internal/names"
)

// Follow reads a file that grows for as long as it does.
type Follow struct {
	// Idle ends the reading when nothing was written for so long; End ends it at once.
	Idle time.Duration
	End  <-chan struct{}
}

const look = 100 * time.Millisecond

// following is a file that is read past its end. An error of ctx ends it in the middle.
type following struct {
	Follow
	ctx  context.Context
	file *os.File
	read int64
	last time.Time
}

func follow(ctx context.Context, file *os.File, o Follow) *following {
	return &following{Follow: o, ctx: ctx, file: file, last: time.Now()}
}

// Read is io.Reader's. It waits for what is written next.
func (f *following) Read(to []byte) (int, error) {
	for {
		n, err := f.file.Read(to)
		f.read += int64(n)
		if n > 0 {
			f.last = time.Now()
		}
		if n > 0 || err != io.EOF {
			return n, err
		}
		if err := f.same(); err != nil {
			return 0, err
		}
		if f.Idle > 0 && time.Since(f.last) >= f.Idle {
			return 0, io.EOF
		}
		select {
		case <-f.End:
			return 0, io.EOF
		case <-f.ctx.Done():
			return 0, context.Cause(f.ctx)
		case <-time.After(look):
		}
	}
}

func (f *following) same() error {
	info, err := f.file.Stat()
	if err != nil || info.Size() < f.read {
		return fmt.Errorf("follow %s: it is shorter than what was read of it; somebody wrote it anew", f.file.Name())
	}
	if now, err := os.Stat(f.file.Name()); err == nil && !os.SameFile(info, now) {
		return fmt.Errorf("follow %s: another file has this name now, of which nothing was read; follow that one", f.file.Name())
	}
	return nil
}

// Close is io.Closer's.
func (f *following) Close() error { return f.file.Close() }

// CanGrow reports whether a name is that of a file of plain text, which can be followed.
func CanGrow(in string) bool {
	return in != "-" && !strings.Contains(in, "://") && !names.Table(in) && !slices.Contains(refused, strings.ToLower(filepath.Ext(in)))
}
