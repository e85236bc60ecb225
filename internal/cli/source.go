package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/columns"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/starter"
)

// source names what a command maps over, as its flags do: --in, --range or --glob.
type source struct {
	// in are files, folders or patterns of files, URLs or - for stdin, one after the other.
	// With lines each line of them is an item, a string. They are CSV with a delimiter,
	// when that is not 0.
	in []string
	// columns of Parquet files that items have. Default: all. text has columns of CSV whose
	// cells stay text.
	columns, text []string
	lines         bool
	delimiter     rune
	stdin         io.Reader
	numbers       string
	glob          []string
	// drop leaves out the items of which it is true. Default: none.
	drop func(item []byte) bool
}

// read gives a map its items; Remove deletes their copy. Files are checked to the last
// line.
func (s source) read(ctx context.Context, m *starter.Map) (err error) {
	switch {
	case s.numbers != "":
		m.Label = "range " + s.numbers
		m.Input.Range, err = parseRange(s.numbers)
		return err
	case s.glob != nil:
		return s.globItems(m)
	}
	inputs, labels, err := s.inputs(ctx)
	if err != nil {
		return err
	}
	return spool(inputs, strings.Join(labels, ", "), m)
}

func (s source) each(ctx context.Context, f func(item []byte, wrong *gpumux.SourceError) error) error {
	inputs, _, err := s.inputs(ctx)
	if err != nil {
		return err
	}
	return items.EachItem(inputs, f)
}

func (s source) inputs(ctx context.Context) (inputs []items.Input, labels []string, err error) {
	for _, in := range s.in {
		if u, err := url.Parse(in); err == nil && u.Scheme == "file" && u.RawQuery == "" && (u.Host == "" || u.Host == "localhost") {
			in = filepath.FromSlash(u.Path)
		}
		found := make([]items.Input, 1)
		if isMany(in) {
			found, err = s.inputsOf(ctx, in)
			in = fmt.Sprintf("%s (%d files)", in, len(found))
		} else {
			found[0], in, err = s.input(ctx, in)
		}
		if err != nil {
			return nil, nil, err
		}
		inputs, labels = append(inputs, found...), append(labels, in)
	}
	return inputs, labels, nil
}

// input describes a file, a URL or standard input. It is opened when it is read.
func (s source) input(ctx context.Context, in string) (input items.Input, label string, err error) {
	input = items.Input{Name: in, Delimiter: s.delimiter, Text: s.text, Drop: s.drop}
	if in == "-" {
		input.Name = "standard input"
		input.Open = func() (io.ReadCloser, error) { return readUntil(ctx, io.NopCloser(s.stdin)), nil }
		switch {
		case s.lines:
			input.Format = items.Lines
		case s.delimiter != 0 || len(s.text) > 0:
			input.Format = items.CSV
		}
		return input, input.Name, nil
	}
	table := names.Table(in)
	if !table {
		input.Format, err = s.formatOf(in)
	} else if s.lines || s.delimiter != 0 || len(s.text) > 0 {
		err = usage("--in %s: --lines, --delimiter and --text go with text; a %s file has rows", in, filepath.Ext(in))
	}
	if _, gone := os.Stat(in); err == nil && !isURL(in) && gone != nil {
		err = usage("--in %s: %v; give JSON lines, .csv or .parquet, or - for standard input", in, errors.Unwrap(gone))
	}
	label = filepath.Base(in)
	if isURL(in) {
		label = in
	}
	input.Open = func() (io.ReadCloser, error) { return s.open(ctx, in, table) }
	return input, label, err
}

// open opens a file or a URL. A table is Parquet.
func (s source) open(ctx context.Context, in string, table bool) (io.ReadCloser, error) {
	if isURL(in) {
		from, err := objects.OpenURL(ctx, in)
		if err != nil {
			return nil, usage("--in: %v", err)
		}
		if !table {
			return from.Reader()
		}
		return columns.Items(ctx, from, from.Size(), addressOf(in), s.columns)
	}
	file, err := os.Open(in)
	if err != nil {
		return nil, usage("--in: %v", err)
	}
	if !table {
		return readUntil(ctx, file), nil
	}
	info, err := file.Stat()
	if err != nil {
		return nil, usage("--in: %v", err)
	}
	return columns.Items(ctx, file, info.Size(), in, s.columns)
}

// formatOf goes by the flags, else by the name; the default is JSON lines.
func (s source) formatOf(in string) (items.Format, error) {
	if s.lines {
		return items.Lines, nil
	}
	name := in
	if isURL(in) {
		name = addressOf(in)
	}
	format, err := items.FormatOf(name)
	switch {
	case (s.delimiter != 0 || len(s.text) > 0) && err == nil && format == items.JSONLines:
		return 0, usage("%s goes with CSV, and the name of --in %s says JSON lines", map[bool]string{true: "--delimiter", false: "--text"}[s.delimiter != 0], in)
	case s.delimiter != 0 || len(s.text) > 0 && err != nil:
		return items.CSV, nil
	case err != nil && (isURL(in) || slices.Contains(refusedEndings, strings.ToLower(filepath.Ext(name)))):
		hint := ""
		if isURL(in) && path.Ext(name) == "" {
			hint = "; the URL of a folder ends in a slash"
		} else if strings.EqualFold(filepath.Ext(in), ".json") {
			hint = "; a JSON array becomes lines with: jq -c '.[]' " + in + " > items.jsonl"
		}
		return 0, usage("--in %s: give JSON lines (.jsonl, one item per line) or CSV with a header (.csv, .tsv), "+
			"plain or compressed (.gz, .zst), or .parquet%s; for text, of which every line is an item, give --lines", in, hint)
	}
	return format, nil
}

var refusedEndings = []string{".json", ".gz", ".zst", ".npy", ".arrow", ".feather", ".xlsx", ".bz2", ".xz", ".zip"}

func spool(inputs []items.Input, label string, m *starter.Map) error {
	spooled, err := items.Spool(inputs...)
	var wrong *local.MistakeError
	switch {
	case errors.As(err, &wrong):
		return wrong
	case err != nil:
		// A mistake in the items was returned above; the rest is this machine's fault.
		return unavailable(err)
	}
	m.Spooled, m.Label = (*starter.Spooled)(spooled), label
	return nil
}

func parseRange(text string) (*gpumux.Range, error) {
	first, last, ok := strings.Cut(text, ":")
	start, err1 := strconv.ParseInt(first, 10, 64)
	end, err2 := strconv.ParseInt(last, 10, 64)
	switch {
	case !ok || err1 != nil || err2 != nil:
		return nil, usage("--range %q: write it as START:END, such as 0:1000 for the numbers 0 to 999", text)
	case end < start:
		return nil, usage("--range %s: the end is before the start", text)
	}
	return &gpumux.Range{Start: start, End: end}, nil
}

func (s source) globItems(m *starter.Map) error {
	var lines []byte
	for _, pattern := range s.glob {
		paths, err := matchingFiles("--glob", pattern)
		folder := strings.TrimRight(pattern, "/")
		switch {
		case err != nil:
			return err
		case len(paths) == 0 && isFolder(pattern):
			return usage("--glob %s is a folder; give '%s/*', or '%s/**/*' with all folders below", pattern, folder, folder)
		case len(paths) == 0:
			return usage("--glob %s fits no file; put the pattern in quotes, and use **/ for all folders below", pattern)
		}
		for _, p := range paths {
			lines = append(results.AppendString(lines, p), '\n')
		}
	}
	in := items.Input{Name: "--glob", Drop: s.drop, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(lines)), nil }}
	return spool([]items.Input{in}, "glob "+strings.Join(s.glob, ", "), m)
}

// readUntil returns a reader that fails with ctx's cause, even while the stream blocks,
// as a terminal does. Close it in any case; the stream is closed after its next read.
func readUntil(ctx context.Context, from io.ReadCloser) *io.PipeReader {
	reader, writer := io.Pipe()
	stop := context.AfterFunc(ctx, func() { writer.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer stop()
		defer from.Close()
		_, err := io.Copy(writer, from)
		writer.CloseWithError(err)
	}()
	return reader
}

// connectWithItems connects to the server of a map and finds its items. It reads local
// items first, so that it finds their mistakes before it reaches anything. A URL in the
// workers' store is left to them; any other is read here.
func connectWithItems(ctx context.Context, a *app, f *mapFlags, m *starter.Map) (*connection, error) {
	s := f.source
	remote := len(s.in) == 1 && isURL(s.in[0]) && s.delimiter == 0 && len(s.text) == 0 && !s.lines && len(f.skip) == 0
	if !remote {
		if err := readItems(ctx, a, f, m); err != nil {
			return nil, err
		}
	}
	conn, err := a.connectWithStore(ctx)
	if err != nil || !remote {
		return conn, err
	}
	if conn.Holds(ctx, s.in[0]) {
		m.Label, m.Input.Source, m.Input.Columns = s.in[0], s.in[0], s.columns
		return conn, nil
	}
	if err := readItems(ctx, a, f, m); err != nil {
		conn.close()
		return nil, err
	}
	return conn, nil
}

const slowInput = 2 * time.Second

func readItems(ctx context.Context, a *app, f *mapFlags, m *starter.Map) error {
	if slices.Contains(f.source.in, "-") {
		slow := time.AfterFunc(slowInput, func() {
			a.console.Note("a map reads standard input to its end before its first item runs; `gpumux stream` runs items as they come")
		})
		defer slow.Stop()
	}
	f.source.stdin = a.Stdin
	if err := f.readItems(ctx, a, m); err != nil {
		return err
	}
	err := m.CheckKey()
	if err != nil {
		err = usage("--key: %v", err)
	}
	if err != nil && m.Input.Key == requestKey {
		err = usage("%v; a request of a batch has it, and rows of another form need --prompt of gpumux llm, and their own --key", err)
	}
	return err
}
