package objects

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gpumux/gpumux/internal/names"
)

// staleAfter is the age at which a temporary file belongs to nobody any more.
const staleAfter = 24 * time.Hour

func prepareDisk(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("cannot make the folder: %w", err)
	}
	probe, err := newTemporary(dir)
	if err != nil {
		return fmt.Errorf("cannot write to the folder: %w", err)
	}
	probe.Close()
	if err := os.Remove(probe.Name()); err != nil {
		return fmt.Errorf("cannot delete in the folder: %w", err)
	}
	temporaries := filepath.Dir(probe.Name())
	entries, err := os.ReadDir(temporaries)
	if err != nil {
		return fmt.Errorf("cannot read the folder: %w", err)
	}
	for _, file := range entries {
		if info, err := file.Info(); err == nil && time.Since(info.ModTime()) > staleAfter {
			os.Remove(filepath.Join(temporaries, file.Name()))
		}
	}
	return nil
}

type diskSink struct {
	*os.File
	path string
	Creation
}

// newTemporary is os.CreateTemp with the umask's permissions: others may have to read it.
func newTemporary(dir string) (*os.File, error) {
	path := filepath.Join(dir, names.Scratch, rand.Text())
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

func (d *diskSink) commit() error {
	defer os.Remove(d.Name())
	var err error
	if !d.Volatile {
		err = d.Sync()
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	folder := filepath.Dir(d.path)
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	if err := d.publish(); err != nil || d.Volatile {
		return err
	}
	return syncFolder(folder)
}

func (d *diskSink) publish() error {
	if !d.exclusive {
		return os.Rename(d.Name(), d.path)
	}
	err := os.Link(d.Name(), d.path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// The file system has no hard links: look, then rename.
	if _, err := os.Lstat(d.path); err == nil {
		return fs.ErrExist
	}
	return os.Rename(d.Name(), d.path)
}

func (d *diskSink) abort() {
	d.Close()
	os.Remove(d.Name())
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	// Some network file systems cannot; they have no such state to lose.
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

// askAgain reports whether a name may be there after all: a host takes one that it has
// not found on NFS for absent for half a minute, until a folder above it is opened.
func (b *Bucket) askAgain(key string) bool {
	for folder := filepath.Dir(b.onDisk(key)); b.dir != "" && len(folder) >= len(b.dir); folder = filepath.Dir(folder) {
		if opened, err := os.Open(folder); err == nil {
			return opened.Close() == nil
		}
	}
	return false
}

// File is the file of the disk with an object, or "" where objects are no files.
func (b *Bucket) File(name string) string {
	key, err := b.Key(name)
	if err != nil || b.dir == "" {
		return ""
	}
	return b.onDisk(key)
}
