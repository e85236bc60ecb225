package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

type place struct {
	// path is the file itself, behind every link.
	path string
	// mode is of the file that is there already, or 0.
	mode fs.FileMode
	// folder: a folder is there; stream: a pipe or a device is.
	folder, stream bool
}

// placeOf looks at what lies under a name.
func placeOf(path string) (place, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		folder, err := filepath.EvalSymlinks(filepath.Dir(path))
		return place{path: filepath.Join(folder, filepath.Base(path))}, err
	case err != nil:
		return place{}, err
	case info.IsDir():
		return place{path: path, folder: true}, nil
	case !info.Mode().IsRegular():
		return place{path: path, stream: true}, nil
	}
	path, err = filepath.EvalSymlinks(path)
	return place{path: path, mode: info.Mode().Perm()}, err
}

// create makes a file beside the place that can be renamed to it. Its mode is that of the
// file it will replace, or as the umask has it.
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
