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
	"github.com/gpumux/gpumux/internal/results"
)

// Printed is what an item printed: its output, or what was left of it when its process ended.
func Printed(r gpumux.Result) string {
	if r.Fault == nil || r.Output != "" {
		return r.Output
	}
	return r.Fault.Tail
}

// Behind is what is left of a text when so much of it was written, of which the end is known. Where that is not in the text, as when an
// earlier try of an item was written, all is left. The last line ends.
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

// Logs writes what items printed, each line behind its item's index, and reports whether any has. It decodes no line of an item that printed
// nothing. An empty line among them stands for a pause.
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
		r, err := results.ParseStored(line)
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
		index, err := results.IndexOf(line)
		if err != nil {
			return nil, err
		}
		if index == item {
			r, err := results.ParseStored(line)
			return &r, err
		}
	}
	return nil, nil
}
