package pyruntime

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The pattern names the files: a folder would leave out __init__.py.
//
//go:embed gpumux/*.py
var files embed.FS

// attempts bounds the rounds against others who install or damage the same folder at the same time.
const attempts = 5

// Install writes the runtime into dir/<content hash>/ and returns the path of its main.py, to be started as `python main.py`
// with the wire on descriptor 3. A complete copy that is there already is used; a damaged one is replaced. Any number of
// processes may install into the same dir at once. An old release's folder is left alone: its processes may still run.
func Install(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("install the Python runtime: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("install the Python runtime: %w", err)
	}
	home := filepath.Join(dir, hash())
	for range attempts {
		if whole(home) {
			return filepath.Join(home, "gpumux", "main.py"), nil
		}
		if err = place(dir, home); err != nil {
			break
		}
	}
	if err == nil {
		err = fmt.Errorf("something keeps changing the files")
	}
	return "", fmt.Errorf("install the Python runtime in %s: %w; give a folder that the worker can write", home, err)
}

// hash names the content: the same files have the same folder.
func hash() string {
	sum := sha256.New()
	walk(func(name string, content []byte) error {
		fmt.Fprintf(sum, "%s %d\n", name, len(content))
		sum.Write(content)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// whole reports whether home has every file as it is embedded.
func whole(home string) bool {
	return walk(func(name string, content []byte) error {
		there, err := os.ReadFile(filepath.Join(home, name))
		if err == nil && !bytes.Equal(there, content) {
			err = fmt.Errorf("%s differs", name)
		}
		return err
	}) == nil
}

// place writes the files beside home and renames them into place in one step.
func place(dir, home string) error {
	temporary, err := os.MkdirTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	// MkdirTemp's folder is private; task processes may run as another user.
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	err = walk(func(name string, content []byte) error {
		path := filepath.Join(temporary, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, content, 0o644)
	})
	if err != nil {
		return err
	}
	refused := os.Rename(temporary, home)
	if refused == nil {
		return nil
	}
	// Somebody's folder is there. If it is whole they were faster; if not it goes, and the next round places ours.
	if whole(home) {
		return nil
	}
	aside := temporary + "-old"
	defer os.RemoveAll(aside)
	err = os.Rename(home, aside)
	if os.IsNotExist(err) && !os.IsExist(refused) {
		return refused
	}
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// walk visits the embedded files in order of name.
func walk(visit func(name string, content []byte) error) error {
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		return visit(name, content)
	})
}
