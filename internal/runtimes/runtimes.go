// Package runtimes puts the Python and the R side of a task process on disk.
//
// It owns R's files and the folders, each named by the hash of what is in it; Python's
// files are those of clients/python. It starts nothing, so nothing has to stop. They need
// Python 3.9 or newer, and R 4.0 or newer with cat and the package jsonlite.
package runtimes

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpumux/gpumux/clients/python"
)

//go:embed r/gpumux/*.R
var embedded embed.FS

// Python writes the Python side below dir and returns the path of its main.py, to be
// started as `python main.py` with the wire on descriptor 3.
func Python(dir string) (string, error) {
	return install(dir, python.Process, "gpumux/process/main.py")
}

// R writes the R side below dir and returns the path of its main.R, to be started as
// `Rscript main.R` with the wire on descriptors 3 and 4.
func R(dir string) (string, error) { return install(dir, embedded, "r/gpumux/main.R") }

func install(dir string, files fs.FS, main string) (string, error) {
	dir, err := unpack(dir, files)
	if err != nil {
		return "", fmt.Errorf("install the runtime of task processes: %w; give a folder that the worker can write", err)
	}
	return filepath.Join(dir, main), nil
}

// unpack writes the files into dir/<content hash>/ and returns that folder. It replaces
// what is damaged. Any number of processes may do so at once. The folder of an old
// release stays: its processes may still run.
func unpack(dir string, files fs.FS) (home string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	home = filepath.Join(dir, hashOf(files))
	return home, walk(files, func(name string, content []byte) error {
		path := filepath.Join(home, name)
		if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, content) {
			return nil
		}
		return write(path, content)
	})
}

// write puts a file in place in one step, which task processes of other users may read.
func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(content)
	return cmp.Or(err, file.Chmod(0o644), file.Close(), os.Rename(file.Name(), path))
}

func hashOf(files fs.FS) string {
	sum := sha256.New()
	walk(files, func(name string, content []byte) error {
		fmt.Fprintf(sum, "%s %d\n", name, len(content))
		sum.Write(content)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

func walk(files fs.FS, visit func(name string, content []byte) error) error {
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return visit(name, content)
	})
}
