// Package runtimes is the Python and the R side of a task process, embedded.
//
// It owns their files and puts them on disk, into a folder named by their hash. It never
// starts anything, so nothing has to stop. They need Python 3.9 or newer, and R 4.0 or
// newer with cat and the package jsonlite.
package runtimes

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
//go:embed python/gpumux/*.py python/gpumux/child/*.py r/gpumux/*.R
var embedded embed.FS

// Python writes the Python side below dir and returns the path of its main.py, to be
// started as `python main.py` with the wire on descriptor 3.
func Python(dir string) (string, error) { return install(dir, "python", "main.py") }

// R writes the R side below dir and returns the path of its main.R, to be started as
// `Rscript main.R` with the wire on descriptors 3 and 4.
func R(dir string) (string, error) { return install(dir, "r", "main.R") }

func install(dir, language, main string) (string, error) {
	files, err := fs.Sub(embedded, language)
	if err == nil {
		dir, err = unpack(dir, files)
	}
	if err != nil {
		return "", fmt.Errorf("install the runtime for tasks in %s: %w", language, err)
	}
	return filepath.Join(dir, "gpumux", main), nil
}

// attempts bounds the races with others that write or damage the same folder.
const attempts = 5

// unpack writes the files into dir/<content hash>/ and returns that folder. It replaces a
// damaged copy. Any number of processes may do so at once. The folder of an old release
// stays: its processes may still run.
func unpack(dir string, files fs.FS) (string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", err
	}
	s := set{files}
	home := filepath.Join(dir, s.hash())
	for range attempts {
		if s.complete(home) {
			return home, nil
		}
		if err = s.write(dir, home); err != nil {
			break
		}
	}
	if err == nil {
		err = errors.New("something keeps changing the files")
	}
	return "", fmt.Errorf("write to %s: %w; give a folder that the worker can write", home, err)
}

type set struct{ files fs.FS }

func (s set) hash() string {
	sum := sha256.New()
	s.walk(func(name string, content []byte) error {
		fmt.Fprintf(sum, "%s %d\n", name, len(content))
		sum.Write(content)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// complete reports whether home has every file as it is in the set.
func (s set) complete(home string) bool {
	return s.walk(func(name string, content []byte) error {
		there, err := os.ReadFile(filepath.Join(home, name))
		if err == nil && !bytes.Equal(there, content) {
			err = fmt.Errorf("%s differs", name)
		}
		return err
	}) == nil
}

// write writes the files beside home and renames them in one step.
func (s set) write(dir, home string) error {
	temporary, err := os.MkdirTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	// MkdirTemp's folder is private; task processes may run as another user.
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	err = s.walk(func(name string, content []byte) error {
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
	if refused == nil || s.complete(home) { // another may have been faster
		return nil
	}
	// A damaged folder is there. It goes, and the next attempt writes.
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

// walk visits the files in order of name.
func (s set) walk(visit func(name string, content []byte) error) error {
	return fs.WalkDir(s.files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(s.files, name)
		if err != nil {
			return err
		}
		return visit(name, content)
	})
}
