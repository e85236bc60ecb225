// Package columns writes results as Parquet and .npy files, and reads items from Parquet.
//
// It owns what becomes of values there: their types, their columns, and what stands in
// the place of a failed item. It opens no file itself, and prints nothing. A reader ends
// at the end of its file or with its context.
package columns

import (
	"bufio"
	"io"
	"path/filepath"
	"strings"
)

// Format is a kind of file that holds columns or arrays.
type Format string

// The formats, by the endings of files.
const (
	NPY     Format = ".npy"
	Parquet Format = ".parquet"
)

// FormatOf is the format that a file's name ends with, or "".
func FormatOf(name string) Format {
	if ending := Format(strings.ToLower(filepath.Ext(name))); ending == NPY || ending == Parquet {
		return ending
	}
	return ""
}

// File is the output of a Writer, which seeks and reads in it.
type File interface {
	io.WriteSeeker
	io.ReaderAt
	io.WriterAt
}

// Writer writes the results of a map.
type Writer interface {
	// Add takes a line of results as it is stored. It keeps nothing of it.
	Add(line []byte) error
	// Finish writes what is left, and returns what people should know of the file, or "".
	Finish() (note string, err error)
}

// NewWriter begins a file.
func NewWriter(to File, format Format) Writer {
	if format == NPY {
		return &npyWriter{file: to, to: bufio.NewWriterSize(to, 256<<10)}
	}
	return newTableWriter(to)
}
