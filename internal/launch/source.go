package launch

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// wholeFile is the size up to which all of a file counts. A larger one is a command's
	// data, such as a model, and counts by its size and both ends, so no map waits for a
	// long read.
	wholeFile = 64 << 20
	// settled is the age from which a file's time shows every change. A younger file may
	// change again within the same tick of its file system's clock.
	settled = 2 * time.Second
)

// sourceFile is the immutable state of one file.
type sourceFile struct {
	path string
	info os.FileInfo
	sum  [sha256.Size]byte
	// names are the modules that a Python file may import, or the files that an R file
	// sources.
	names []string
	// final says that a file with the same size and time has the same content.
	final bool
}

var (
	cacheMu sync.Mutex
	cache   = map[string]*sourceFile{}
)

// readFile reads a file unless it has not changed since the last time. It is nil unless
// the file is a regular one: a named pipe would wait for a writer.
func readFile(path string) *sourceFile {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	cacheMu.Lock()
	last := cache[path]
	cacheMu.Unlock()
	if last != nil && last.final && os.SameFile(last.info, info) && last.info.Size() == info.Size() && last.info.ModTime().Equal(info.ModTime()) {
		return last
	}
	now := &sourceFile{path: path, info: info, final: time.Since(info.ModTime()) > settled}
	if now.read() != nil {
		return nil
	}
	cacheMu.Lock()
	defer cacheMu.Unlock()
	cache[path] = now
	return now
}

func (f *sourceFile) read() error {
	opened, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer opened.Close()
	from := io.Reader(opened)
	if size := f.info.Size(); size > wholeFile {
		from = io.MultiReader(strings.NewReader(fmt.Sprint(size)), io.NewSectionReader(opened, 0, wholeFile/2),
			io.NewSectionReader(opened, size-wholeFile/2, wholeFile/2))
	}
	text, err := io.ReadAll(from)
	f.sum = sha256.Sum256(text)
	switch filepath.Ext(f.path) {
	case ".py":
		f.names = importsOf(text)
	case ".R":
		for _, m := range sourceCall.FindAllSubmatch(text, -1) {
			f.names = append(f.names, string(m[1]))
		}
	}
	return err
}
