package workers

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/runtimes"
)

// installRuntimes writes the runtimes to the user's cache. Where there is none, or other
// users need them, who cannot enter a home, it writes them to a temporary folder.
func (w *Worker) installRuntimes() (string, error) {
	users, dir := w.namedUsers(), w.o.Runtime
	if cache, err := os.UserCacheDir(); dir == "" && err == nil && len(users) == 0 {
		cache = filepath.Join(cache, "gpumux")
		if path, err := w.unpack(cache); err == nil {
			return path, w.makeHomes(cache, nil)
		}
	}
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "gpumux-"); err != nil {
			return "", fmt.Errorf("make a folder for the runtimes: %w", err)
		}
		w.scratch = dir
		if err := os.Chmod(dir, 0o711); err != nil {
			return "", fmt.Errorf("make a folder for the runtimes: %w", err)
		}
	}
	path, err := w.unpack(dir)
	if err != nil {
		return "", err
	}
	return path, w.makeHomes(dir, users)
}

// unpack writes the runtimes below a folder and returns Python's.
func (w *Worker) unpack(dir string) (python string, err error) {
	if w.rRuntime, err = runtimes.R(dir); err != nil {
		return "", err
	}
	return runtimes.Python(dir)
}

// makeHomes makes HOME for tasks, outside of a read-only dir, and that of users without.
func (w *Worker) makeHomes(dir string, users []*process.User) error {
	w.home = filepath.Join(dir, "home")
	if os.MkdirAll(w.home, 0o700) != nil {
		w.home = filepath.Join(os.TempDir(), fmt.Sprintf("gpumux-home-%d", os.Getuid()))
		own := &process.User{Name: "of the worker", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: w.home}
		if err := own.MakeHome(); err != nil {
			return err
		}
	}
	for _, u := range users {
		if err := u.MakeHome(); err != nil {
			return err
		}
	}
	return nil
}
