package workers

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

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
	return python, cmp.Or(err, w.makeHome(dir))
}

func (w *Worker) makeHome(dir string) error {
	w.home = filepath.Join(dir, "home")
	if os.MkdirAll(w.home, 0o700) == nil {
		return nil
	}
	w.home = filepath.Join(os.TempDir(), fmt.Sprintf("gpumux-home-%d", os.Getuid()))
	err := os.Mkdir(w.home, 0o700)
	if info, statErr := os.Lstat(w.home); statErr == nil && info.IsDir() && info.Sys().(*syscall.Stat_t).Uid == uint32(os.Getuid()) {
		return nil // a link, or a folder of somebody else's, is no home
	}
	return fmt.Errorf("make the home of tasks: %w; remove what is there", err)
}
