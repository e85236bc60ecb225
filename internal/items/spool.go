package items

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/gpumux/gpumux"
)

type Format int

const (
	// JSONLines is one JSON value per line.
	JSONLines Format = iota
	// CSV is a header and an object per row, with commas between the cells.
	CSV
	// TSV is CSV with tabs in place of the commas.
	TSV
	// Lines is text. Every line is an item, a string.
	Lines
	// Values is a results file. Every value is an item.
	Values
	// Failed is a results file with its items. Every failed item is an item.
	Failed
)

// FormatOf is the format that a file's name stands for, also with .gz or .zst behind it.
func FormatOf(name string) (Format, error) {
	inner, _ := cutArchive(name)
	switch ext := strings.ToLower(path.Ext(inner)); ext {
	case ".jsonl", ".ndjson":
		return JSONLines, nil
	case ".csv":
		return CSV, nil
	case ".tsv":
		return TSV, nil
	default:
		return 0, &gpumux.SourceError{Name: name, Problem: fmt.Sprintf("the ending %q does not tell the format", ext),
			Hint: "name it .jsonl (one JSON value per line) or .csv or .tsv (with a header), with .gz or .zst behind it when compressed, " +
				"or .parquet, which is never compressed as a whole"}
	}
}

// Spooled is an input in temporary files, checked and indexed. They have no names, so
// nothing of them stays after a kill. Remove lets them go.
type Spooled struct {
	// Items is the number of items, Bytes the size of their lines together.
	Items, Bytes int64
	// Hash is the SHA-256 of the lines in hexadecimal.
	Hash         string
	lines, index *os.File
}

// Spool copies inputs of any size into a temporary file with one item per line, and
// checks each. Mistakes in them are a *gpumux.SourceError. JSON values keep their
// text. Gzip and zstd are known by their first bytes and decompressed.
func Spool(inputs ...Input) (_ *Spooled, err error) {
	from := &chain{inputs: inputs}
	defer from.close()
	if err := from.openNext(); err != nil {
		return nil, err
	}
	s := &Spooled{}
	defer func() {
		if err != nil {
			s.Remove()
		}
	}()
	const room = "the folder for temporary files (TMPDIR)"
	for _, file := range []**os.File{&s.lines, &s.index} {
		if *file, err = os.CreateTemp("", "gpumux-*"); err == nil {
			err = os.Remove((*file).Name())
		}
		if err != nil {
			return nil, notCopied(err, room)
		}
	}
	hash := sha256.New()
	to := newLineWriter(io.MultiWriter(s.lines, hash), s.index)
	if err := to.copyItems(from, room); err != nil {
		return nil, err
	}
	s.Items, s.Bytes, s.Hash = to.marks.items, to.at.offset, hex.EncodeToString(hash.Sum(nil))
	return s, nil
}

// SpoolReader is Spool of one stream, whose name stands in errors.
func SpoolReader(r io.Reader, name string, format Format) (*Spooled, error) {
	open := func() (io.ReadCloser, error) { return io.NopCloser(r), nil }
	return Spool(Input{Open: open, Name: name, Format: format})
}

type lineWriter struct {
	lines *bufio.Writer
	marks *indexWriter
	at    position
}

func newLineWriter(lines, index io.Writer) *lineWriter {
	return &lineWriter{lines: bufio.NewWriterSize(lines, 256<<10), marks: newIndexWriter(index)}
}

func (w *lineWriter) add(item []byte) error {
	w.marks.mark(w.at)
	w.at.pass(item)
	w.at.pass([]byte{'\n'})
	w.lines.Write(item) // an error comes back from every later write
	return w.lines.WriteByte('\n')
}

func (w *lineWriter) finish() error { return errors.Join(w.lines.Flush(), w.marks.finish(w.at)) }

// copyItems writes all items. Room is where there is too little of it if that fails.
func (w *lineWriter) copyItems(from itemReader, room string) error {
	for {
		item, _, err := from.next()
		if err == io.EOF {
			if err := w.finish(); err != nil {
				return notCopied(err, room)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.add(item); err != nil {
			return notCopied(err, room)
		}
	}
}

func notCopied(err error, room string) error {
	return fmt.Errorf("copy the items: %w; check the space of %s", err, room)
}

// All returns every item. It is for inputs that fit in memory.
func (s *Spooled) All() ([]json.RawMessage, error) {
	data := make([]byte, s.Bytes)
	if _, err := s.lines.ReadAt(data, 0); err != nil && err != io.EOF {
		return nil, readBack(err)
	}
	all := make([]json.RawMessage, 0, s.Items)
	for line := range bytes.Lines(data) {
		item := line[:len(line)-1]
		all = append(all, item[:len(item):len(item)])
	}
	return all, nil
}

// First returns the first item, which must exist.
func (s *Spooled) First() (json.RawMessage, error) {
	line, err := bufio.NewReader(io.NewSectionReader(s.lines, 0, s.Bytes)).ReadBytes('\n')
	if err != nil {
		return nil, readBack(err)
	}
	return line[:len(line)-1], nil
}

// Remove deletes the temporary files. It may be called again, and of none.
func (s *Spooled) Remove() error {
	if s == nil {
		return nil
	}
	lines, index := s.lines, s.index
	s.lines, s.index = nil, nil
	return errors.Join(closed(lines), closed(index))
}

func closed(file *os.File) error {
	if file == nil {
		return nil
	}
	return file.Close()
}
