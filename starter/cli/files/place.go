package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// place is where a file of results is to appear.
type place struct {
	// path is the file itself, behind every link.
	path string
	// mode is of the file that is there already, or 0.
	mode fs.FileMode
	// folder says that a folder is there; stream that something is that takes bytes but is no file, such as a pipe or a device.
	folder, stream bool
}

// mostLinks is how many links in a row are followed, as many as the system follows.
const mostLinks = 40

// placeOf looks at what lies under a name.
func placeOf(path string) (place, error) {
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return place{path: path, folder: true}, nil
	case err == nil && !info.Mode().IsRegular():
		return place{path: path, stream: true}, nil
	case err == nil:
		p := place{mode: info.Mode().Perm()}
		p.path, err = filepath.EvalSymlinks(path)
		return p, err
	case !errors.Is(err, fs.ErrNotExist):
		return place{}, err
	}
	for range mostLinks { // to where the file is to be that a link names
		folder, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return place{}, err
		}
		path = filepath.Join(folder, filepath.Base(path))
		to, err := os.Readlink(path)
		if err != nil { // there is nothing yet
			return place{path: path}, nil
		}
		if path = to; !filepath.IsAbs(to) {
			path = filepath.Join(folder, to)
		}
	}
	return place{}, fmt.Errorf("more than %d symbolic links in a row", mostLinks)
}

// create makes a file beside the place that can be renamed to it. Its mode is that of the file it will replace, or as the umask
// has it.
func (p place) create() (*os.File, error) {
	for n := os.Getpid(); ; n++ {
		name := filepath.Join(filepath.Dir(p.path), ".gpumux-"+strconv.Itoa(n))
		file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue // of another writer, or of one that was killed
		}
		if err == nil && p.mode != 0 {
			if err = file.Chmod(p.mode); err != nil {
				_ = file.Close()
				_ = os.Remove(name)
				return nil, err
			}
		}
		return file, err
	}
}

// open opens a stream, which may have to wait for a reader.
func (p place) open(ctx context.Context) (*os.File, error) {
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		file, err := os.OpenFile(p.path, os.O_WRONLY, 0)
		done <- opened{file, err}
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case o := <-done:
		return o.file, o.err
	}
}

// lastWrite is how long a write may go on after its context has ended.
const lastWrite = time.Second

// unblocked writes until ctx ends: a write that blocks then is left behind, and the writer must not be used again.
type unblocked struct {
	ctx context.Context
	to  io.Writer
}

func (u *unblocked) Write(p []byte) (int, error) {
	done := make(chan struct{})
	var written int
	var failed error
	go func() {
		defer close(done)
		written, failed = u.to.Write(p)
	}()
	select {
	case <-done:
		return written, failed
	case <-u.ctx.Done():
	}
	select {
	case <-done:
		return written, failed
	case <-time.After(lastWrite):
		return 0, context.Cause(u.ctx)
	}
}
