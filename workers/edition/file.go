package edition

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// wholeFile is the size up to which a file counts by all that it holds. A larger one is data that a command is given, such as a
	// model, and counts by its size and by samples spread over it, so that no map waits for it to be read.
	wholeFile = 64 << 20
	// samples is how many there are of such a file, sampleSize how large each is.
	samples, sampleSize = 64, 64 << 10
	// settled is the age at which a file's time tells whether it has changed. A younger one may change again within the same tick
	// of its file system's clock.
	settled = 2 * time.Second
	// mostFiles bounds what is remembered.
	mostFiles = 20_000
)

// file is what is known of one file. Nobody changes it.
type file struct {
	path string
	info os.FileInfo
	sum  [sha256.Size]byte
	// imports are the modules that a Python file may import.
	imports []string
	// sure reports whether a file with the same state holds the same.
	sure bool
}

// none stands for a file that is not there.
var none = file{sum: sha256.Sum256(nil)}

// known are the files that were read, by path.
var (
	knownMu sync.Mutex
	known   = map[string]*file{}
)

// look reads a file unless that was done since it last changed. It is nil where there is no file that can be read.
func look(path string) *file {
	info := regular(path)
	if info == nil {
		return nil
	}
	knownMu.Lock()
	last := known[path]
	knownMu.Unlock()
	if last != nil && last.sure && os.SameFile(last.info, info) && last.info.Size() == info.Size() && last.info.ModTime().Equal(info.ModTime()) {
		return last
	}
	now := &file{path: path, info: info, sure: time.Since(info.ModTime()) > settled}
	if now.read() != nil {
		return nil
	}
	knownMu.Lock()
	defer knownMu.Unlock()
	if len(known) >= mostFiles {
		clear(known)
	}
	known[path] = now
	return now
}

func (f *file) read() error {
	opened, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer opened.Close()
	sum := sha256.New()
	switch {
	case f.info.Size() > wholeFile:
		err = sample(sum, opened, f.info.Size())
	case strings.HasSuffix(f.path, ".py"):
		text, failed := io.ReadAll(opened)
		err = failed
		_, _ = sum.Write(text)
		f.imports = imported(text[:min(len(text), largestModule)])
	default:
		_, err = io.Copy(sum, opened)
	}
	sum.Sum(f.sum[:0])
	return err
}

// sample hashes the size of a large file and parts of it, the first and the last among them.
func sample(sum hash.Hash, from io.ReaderAt, size int64) error {
	_, _ = fmt.Fprint(sum, size)
	for i := range int64(samples) {
		at := (size - sampleSize) / (samples - 1) * i
		if i == samples-1 {
			at = size - sampleSize
		}
		if _, err := io.Copy(sum, io.NewSectionReader(from, at, sampleSize)); err != nil {
			return err
		}
	}
	return nil
}
