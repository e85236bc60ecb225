package cli

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/columns"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

// output is a file that appears whole or not at all, or standard output.
type output struct {
	// path is empty for standard output.
	path string
	filter
	// kept fetches the files that the results name. Default: nobody does.
	kept *keptFiles
	// tokens counts those of the results, count the results. Default: nobody does.
	tokens *tokens
	count  *atomic.Int64
	// schema declares the columns of a file that has some; unfit gets what does not fit
	// them. Default: the first results do.
	schema columns.Schema
	unfit  *error
	// owner names the unfinished file. Default: the process does.
	owner  string
	stdout io.Writer
}

// filter says which results to write, and which parts of them.
type filter struct {
	// values writes the value alone, null for a failed item, openAI lines of OpenAI's
	// batches; failed leaves out what succeeded. exact leaves NaN as gpumux's clients tell
	// it from the text "NaN".
	values, openAI, failed, exact bool
}

const unnamed = "?"

// chooseOutput reads --out and --schema. Without --out results go to a pipe. Where
// standard output is a screen, or is for JSON, they go to a file that named names.
func chooseOutput(flag, schema string, stdout io.Writer, asJSON, onScreen bool) (output, error) {
	o, ending := output{path: flag, stdout: stdout, unfit: new(error)}, strings.ToLower(filepath.Ext(flag))
	switch {
	case schema != "" && !names.Table(flag):
		return o, usage("--schema goes with --out FILE%s", columns.Parquet)
	case flag == "-" && asJSON:
		return o, usage("--out -: --json has standard output for the summary; give --out FILE")
	case flag == "-", flag == "" && !asJSON && !onScreen:
		o.path = ""
		return o, nil
	case flag == "":
		o.path = unnamed
		return o, nil
	case strings.Contains(flag, "://"):
		return o, usage("--out %s: results are fetched into a file here; leave --out away and use --detach to let them lie in the store", flag)
	case slices.Contains([]string{".gz", ".gzip", ".zst", ".zstd"}, ending):
		return o, usage("--out %s: results are not compressed as a whole; leave the last ending away, or give --out - and pipe them into gzip or zstd", flag)
	case slices.Contains([]string{".csv", ".tsv", ".npy", ".arrow", ".feather"}, ending):
		return o, usage("--out %s: results are JSON lines or Parquet; name the file .jsonl or .parquet", flag)
	}
	if err := o.check(); err != nil || schema == "" {
		return o, err
	}
	from, err := os.Open(schema)
	if err == nil {
		o.schema, err = columns.ReadSchema(from, schema)
	}
	if err != nil {
		return o, usage("--schema: %v", err)
	}
	return o, nil
}

const schemaUsage = "with --out FILE.parquet: what its columns are, as in this Parquet `file`; a result that does not fit is a fault there"

func (o output) named(id string) (output, error) {
	if o.path != unnamed {
		return o, nil
	}
	o.path = id + ".results.jsonl"
	return o, o.check()
}

// file is the whole path of a file that the user named, or empty.
func (o output) file() string {
	at, err := placeOf(o.path)
	if o.path == "" || o.path == unnamed || err != nil || at.stream {
		return ""
	}
	path, _ := filepath.Abs(at.path)
	folder, _ := filepath.EvalSymlinks(filepath.Dir(path)) // the shell's PWD may be a link
	return filepath.Join(folder, filepath.Base(path))
}

// while returns the output for the results of a map that still runs, and false if they
// have to wait. The unfinished file is the map's: where one was left, it is replaced.
func (o output) while(id string) (output, bool) {
	if o.path == "" {
		return o, true
	}
	at, err := placeOf(o.path)
	o.owner = url.PathEscape(id)
	return o, err == nil && !at.stream && o.path != unnamed
}

func (o output) check() error {
	at, err := placeOf(o.path)
	if err == nil && (at.stream || at.mode != 0) {
		err = unix.Access(at.path, unix.W_OK)
	}
	if err == nil && at.stream && names.Table(o.path) {
		err = errors.New("it is no file; Parquet needs one")
	}
	if err == nil && !at.stream {
		var trial *os.File
		if trial, err = at.create(""); err == nil {
			err = errors.Join(trial.Close(), os.Remove(trial.Name()))
		}
	}
	if err != nil {
		return usage("--out %s cannot be written: %v", o.path, err)
	}
	return nil
}

// write writes results as they come, and returns why items failed.
func (o output) write(ctx context.Context, from iter.Seq2[[]byte, error]) (causes starter.Causes, err error) {
	var failed error // to give a result
	noted := func(yield func([]byte, error) bool) {
		for line, err := range from {
			o.tokens.add(line)
			if o.count != nil && len(line) > 0 {
				o.count.Add(1)
			}
			if failed = err; !yield(line, err) {
				return
			}
		}
	}
	lines := noted
	if o.kept != nil {
		lines = o.kept.along(ctx, noted)
	}
	where := "the results"
	if o.path == "" {
		err = o.copy(ctx, &unblockedWriter{ctx, o.stdout}, lines, &causes)
	} else {
		where, err = o.path, o.toPath(ctx, lines, &causes)
	}
	if at, is := errors.AsType[*fs.PathError](err); err == nil || failed != nil || is && at.Path == o.path { // it says where already
		return causes, err
	}
	return causes, fmt.Errorf("write %s: %w", where, err)
}

func (o output) toPath(ctx context.Context, from iter.Seq2[[]byte, error], causes *starter.Causes) error {
	at, err := placeOf(o.path)
	if err != nil {
		return err
	}
	if at.stream {
		to, err := os.OpenFile(at.path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		err = o.copy(ctx, &unblockedWriter{ctx, to}, from, causes)
		if ctx.Err() != nil {
			return err // a write may still block, and closing with it
		}
		return errors.Join(err, to.Close())
	}
	return at.replace(o.owner, func(file *os.File) error {
		if names.Table(o.path) {
			return o.writeColumns(ctx, file, from, causes)
		}
		return o.copy(ctx, file, from, causes)
	})
}

// copy writes results. An empty line stands for a pause, before which everything is
// written out.
func (o output) copy(ctx context.Context, out io.Writer, from iter.Seq2[[]byte, error], causes *starter.Causes) error {
	to := bufio.NewWriterSize(out, 256<<10)
	for line, err := range from {
		switch {
		case err != nil:
			return errors.Join(err, to.Flush())
		case len(line) == 0:
			err = to.Flush()
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		default:
			err = o.writeLine(to, line, causes)
		}
		if err != nil {
			return err
		}
	}
	return to.Flush()
}

func (o output) writeLine(to *bufio.Writer, line []byte, causes *starter.Causes) error {
	line, err := results.Plain(line)
	if err == nil {
		line, err = o.pick(line, causes)
	}
	if err != nil || line == nil {
		return err
	}
	if !o.exact {
		line = text.Unescaped(line)
	}
	_, _ = to.Write(line) // an error of it stays, and comes again
	return to.WriteByte('\n')
}

func (o output) pick(line []byte, causes *starter.Causes) ([]byte, error) {
	if err := causes.AddLine(line); err != nil {
		return nil, err
	}
	if o.failed {
		if outcome, err := results.ParseOutcome(line); err != nil || outcome.Kind == "" {
			return nil, nil
		}
	}
	if o.openAI {
		return batchRow(line)
	}
	if !o.values {
		return line, nil
	}
	result := struct {
		Value json.RawMessage `json:"value"`
	}{json.RawMessage("null")}
	if err := json.Unmarshal(line, &result); err != nil {
		return nil, fmt.Errorf("read a result: %w", err)
	}
	return result.Value, nil
}

// suits returns why a file of columns cannot hold what the filter leaves.
func (f filter) suits(path string) error {
	if names.Table(path) && (f.values || f.openAI || f.failed) {
		return usage("--out %s: --values, --openai and --failed go with JSON lines; a %s file has all items", path, columns.Parquet)
	}
	return nil
}

func (o output) misfits() (count int64) {
	if unfit, ok := errors.AsType[*columns.UnfitError](*o.unfit); ok {
		count = unfit.Count
	}
	return count
}

func (o output) writeColumns(ctx context.Context, file *os.File, from iter.Seq2[[]byte, error], causes *starter.Causes) error {
	to := columns.NewWriter(file, o.schema)
	for line, err := range from {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = causes.AddLine(line)
		}
		if err == nil && len(line) > 0 {
			err = to.Add(line)
		}
		if err != nil {
			return err
		}
	}
	err := to.Finish()
	if to.Unfit != nil {
		*o.unfit = to.Unfit
	}
	return err
}

type place struct {
	// path is the file itself, with links resolved.
	path string
	// mode is the mode of an existing file, else 0.
	mode fs.FileMode
	// stream says that a pipe or device is there.
	stream bool
}

func placeOf(path string) (place, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		folder, err := filepath.EvalSymlinks(filepath.Dir(path))
		return place{path: filepath.Join(folder, filepath.Base(path))}, err
	case err != nil:
		return place{}, err
	case info.IsDir():
		return place{}, errors.New("it is a folder; name a file in it")
	case !info.Mode().IsRegular():
		return place{path: path, stream: true}, nil
	}
	path, err = filepath.EvalSymlinks(path)
	return place{path: path, mode: info.Mode().Perm()}, err
}

// replace makes the file of what fill writes. It appears whole or not at all.
func (p place) replace(owner string, fill func(*os.File) error) error {
	file, err := p.create(owner)
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // it has another name by then when all went well
	if err := errors.Join(fill(file), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), p.path)
}

// create makes a file in the folder of the place, to be renamed to it: the owner's, who
// has one at a time, else a further one. It keeps the mode of the file that it will
// replace, else the umask decides.
func (p place) create(owner string) (*os.File, error) {
	name := ".gpumux-" + cmp.Or(owner, rand.Text())
	file, err := os.OpenFile(filepath.Join(filepath.Dir(p.path), name), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o666)
	if err != nil || p.mode == 0 {
		return file, err
	}
	if err = file.Chmod(p.mode); err != nil {
		_ = file.Close()
		_ = os.Remove(file.Name())
		return nil, err
	}
	return file, nil
}

// lastWrite is the time for a write after its context has ended.
const lastWrite = time.Second

// unblockedWriter writes until ctx ends, so that one Ctrl-C ends a command whose results
// nobody reads. A write that blocks then is abandoned, and the writer must not be used
// again.
type unblockedWriter struct {
	ctx context.Context
	to  io.Writer
}

func (u *unblockedWriter) Write(p []byte) (int, error) {
	type outcome struct {
		written int
		err     error
	}
	done := make(chan outcome, 1)
	go func() {
		n, err := u.to.Write(p)
		done <- outcome{n, err}
	}()
	select {
	case got := <-done:
		return got.written, got.err
	case <-u.ctx.Done():
	}
	select {
	case got := <-done:
		return got.written, got.err
	case <-time.After(lastWrite):
		return 0, context.Cause(u.ctx)
	}
}
