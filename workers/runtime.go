package workers

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpumux/gpumux/internal/runtimes"
)

// installRuntimes writes the runtimes to the user's cache, or where there is none to a
// temporary folder.
func (w *Worker) installRuntimes() (string, error) {
	if w.o.Runtime != "" {
		return w.unpack(w.o.Runtime)
	}
	if cache, err := os.UserCacheDir(); err == nil {
		if path, err := w.unpack(filepath.Join(cache, "gpumux")); err == nil {
			return path, nil
		}
	}
	var err error
	if w.scratch, err = os.MkdirTemp("", "gpumux-"); err != nil {
		return "", fmt.Errorf("make a folder for the runtimes: %w", err)
	}
	return w.unpack(w.scratch)
}

// unpack writes the runtimes and the home of tasks below a folder, and returns Python's.
func (w *Worker) unpack(dir string) (python string, err error) {
	if w.rRuntime, err = runtimes.R(dir); err == nil {
		python, err = runtimes.Python(dir)
	}
	if err == nil {
		err = w.makeHome(dir)
	}
	return python, err
}

// makeHome makes a home beside the runtimes, or where an image has brought these in a
// folder that nobody can write, one to be removed.
func (w *Worker) makeHome(dir string) (err error) {
	w.home = filepath.Join(dir, "home")
	if os.MkdirAll(w.home, 0o700) != nil {
		w.scratch, err = os.MkdirTemp("", "gpumux-home-")
		w.home = w.scratch
	}
	return err
}
