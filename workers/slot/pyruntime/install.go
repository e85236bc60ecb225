package pyruntime

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The pattern names the files: a folder would leave out __init__.py.
//
//go:embed gpumux/*.py gpumux/child/*.py
var files embed.FS

// attempts bounds the races with others that install or damage the same folder.
const attempts = 5

// Install writes the runtime into dir/<content hash>/ and returns the path of its main.py, to be started as `python main.py` with the
// wire on descriptor 3. It uses a complete copy and replaces a damaged one. Any number of processes may install into the same dir at
// once. An old release's folder stays: its processes may still run.
func Install(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("install the Python runtime: %w", err)
	}
	home := filepath.Join(dir, hash())
	for range attempts {
		if complete(home) {
			return filepath.Join(home, "gpumux", "main.py"), nil
		}
		if err = install(dir, home); err != nil {
			break
		}
	}
	if err == nil {
		err = errors.New("something keeps changing the files")
	}
	return "", fmt.Errorf("install the Python runtime in %s: %w; give a folder that the worker can write", home, err)
}

func hash() string {
	sum := sha256.New()
	walk(func(name string, content []byte) error {
		fmt.Fprintf(sum, "%s %d\n", name, len(content))
		sum.Write(content)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// complete reports whether home has every file as it is embedded.
func complete(home string) bool {
	return walk(func(name string, content []byte) error {
		there, err := os.ReadFile(filepath.Join(home, name))
		if err == nil && !bytes.Equal(there, content) {
			err = fmt.Errorf("%s differs", name)
		}
		return err
	}) == nil
}

// install writes the files beside home and renames them in one step.
func install(dir, home string) error {
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
	if refused == nil || complete(home) { // another installer may have been faster
		return nil
	}
	// A damaged folder is there. It goes, and the next attempt installs.
	aside := temporary + "-old"
	defer os.RemoveAll(aside)
	err = os.Rename(home, aside)
	if os.IsNotExist(err) {
		if !os.IsExist(refused) {
			return refused
		}
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
