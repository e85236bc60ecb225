package show

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/store"
)

// Printed is an item's output, or what its process printed last.
func Printed(r gpumux.Result) string {
	if r.Fault == nil || r.Output != "" {
		return r.Output
	}
	return r.Fault.Tail
}

// Behind returns the text after the part already written, whose end is known, else all of
// it. The last line ends.
func Behind(text, written string) string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	at := strings.LastIndex(text, written)
	if written == "" || at < 0 {
		return text
	}
	return text[at+len(written):]
}

// Logs writes what items printed, each line behind its index, and reports whether any
// did. An empty line stands for a pause.
func Logs(out io.Writer, lines iter.Seq2[[]byte, error]) (some bool, err error) {
	to := bufio.NewWriter(out)
	for line, err := range lines {
		if err == nil && len(line) == 0 {
			err = to.Flush()
		}
		if err != nil {
			return some, errors.Join(err, to.Flush())
		}
		if !bytes.Contains(line, []byte(`"output":`)) && !bytes.Contains(line, []byte(`"tail":`)) {
			continue
		}
		r, err := store.ParseStored(line)
		if err != nil {
			return some, errors.Join(err, to.Flush())
		}
		for text := range strings.Lines(Printed(r)) {
			some = true
			fmt.Fprintf(to, "%d  %s\n", r.Index, strings.TrimSuffix(text, "\n"))
		}
	}
	return some, to.Flush()
}

// ResultOf looks for the result of an item, which is nil where there is none.
func ResultOf(lines iter.Seq2[[]byte, error], item int64) (*gpumux.Result, error) {
	for line, err := range lines {
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			continue
		}
		index, err := store.IndexOf(line)
		if err != nil {
			return nil, err
		}
		if index == item {
			r, err := store.ParseStored(line)
			return &r, err
		}
	}
	return nil, nil
}
