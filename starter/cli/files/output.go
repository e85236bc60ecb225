package files

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/store"
	"github.com/gpumux/gpumux/store/columns"
)

// Output is a file that appears whole or not at all, or standard output.
type Output struct {
	// Path is empty for standard output.
	Path string
	Filter
	// Kept fetches the files that the results name. Default: nobody does.
	Kept *Kept
	// Note tells people something of the file that was written. Default: nobody is told.
	Note   func(format string, args ...any)
	stdout io.Writer
}

// Filter says which results to write, and what of them.
type Filter struct {
	// Values writes the value alone, null for a failed item; Failed leaves out what
	// succeeded. Exact leaves NaN as gpumux's clients tell it from the text "NaN".
	Values, Failed, Exact bool
}

// unnamed is the path of an output that Named gives a name.
const unnamed = "?"

// Choose reads --out. Without it results go down the pipe, or on a screen into a file
// that Named makes, as they do where standard output is for JSON.
func Choose(flag string, stdout io.Writer, asJSON, onScreen bool) (Output, error) {
	o := Output{Path: flag, stdout: stdout}
	switch {
	case flag == "-" && asJSON:
		return o, usage("--out -: --json has standard output for the summary; give --out FILE")
	case flag == "-", flag == "" && !asJSON && !onScreen:
		o.Path = ""
		return o, nil
	case flag == "":
		o.Path = unnamed
		return o, nil
	case strings.Contains(flag, "://"):
		return o, usage("--out %s: results are fetched into a file here; leave --out away and use --detach to let them lie in the store", flag)
	case columns.FormatOf(resultsAs(flag)) != "" && columns.FormatOf(flag) == "":
		return o, usage("--out %s: a %s file is not compressed as a whole; leave the last ending away", flag, resultsAs(flag))
	case resultsAs(flag) == ".csv" || resultsAs(flag) == ".tsv":
		return o, usage("--out %s: results are JSON lines or columns; name the file .jsonl, .parquet, .arrow, .feather or .npy", flag)
	}
	return o, o.check()
}

// resultsAs is the ending that names the format, without that of the compression.
func resultsAs(name string) string {
	ending := strings.ToLower(filepath.Ext(name))
	if packer, err := store.Pack(io.Discard, name); err == nil && packer != nil {
		ending = strings.ToLower(filepath.Ext(strings.TrimSuffix(name, filepath.Ext(name))))
	}
	return ending
}

// Named puts the default name in place when the user gave none.
func (o Output) Named(id string) (Output, error) {
	if o.Path != unnamed {
		return o, nil
	}
	o.Path = id + ".results.jsonl"
	return o, o.check()
}

func (o Output) check() error {
	at, err := placeOf(o.Path)
	switch {
	case err != nil:
	case at.folder:
		return usage("--out %s is a folder; name a file in it", o.Path)
	case at.stream || at.mode != 0:
		err = cmp.Or(unix.Access(at.path, unix.W_OK), o.checkColumns(at))
	}
	if err == nil && !at.stream {
		var trial *os.File
		if trial, err = at.create(); err == nil {
			err = errors.Join(trial.Close(), os.Remove(trial.Name()))
		}
	}
	if err != nil {
		return usage("--out %s cannot be written: %v", o.Path, err)
	}
	return nil
}

// Write writes results as they come, and returns why items failed.
func (o Output) Write(ctx context.Context, from iter.Seq2[[]byte, error]) (causes starter.Causes, err error) {
	var failed error // to give a result
	given := func(yield func([]byte, error) bool) {
		for line, err := range from {
			if failed = err; !yield(line, err) {
				return
			}
		}
	}
	lines := given
	if o.Kept != nil {
		lines = o.Kept.along(ctx, given)
	}
	where := "the results"
	if o.Path == "" {
		err = o.copy(ctx, o.stdout, lines, &causes)
	} else {
		where, err = o.Path, o.file(ctx, lines, &causes)
	}
	var at *fs.PathError
	if err == nil || failed != nil || errors.As(err, &at) && at.Path == o.Path { // it says where already
		return causes, err
	}
	return causes, fmt.Errorf("write %s: %w", where, err)
}

// file replaces a file whole, or writes into a device or a pipe.
func (o Output) file(ctx context.Context, from iter.Seq2[[]byte, error], causes *starter.Causes) error {
	at, err := placeOf(o.Path)
	if err != nil {
		return err
	}
	if at.stream {
		to, err := os.OpenFile(at.path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(o.copy(ctx, to, from, causes), to.Close())
	}
	file, err := at.create()
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // it has another name by then when all went well
	defer file.Close()
	if columns.FormatOf(o.Path) != "" {
		err = o.writeColumns(ctx, file, from, causes)
	} else {
		err = o.copy(ctx, file, from, causes)
	}
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), at.path)
}

// copy writes results, compressed where the file's name says so. An empty line stands for
// a pause, before which everything is written out.
func (o Output) copy(ctx context.Context, out io.Writer, from iter.Seq2[[]byte, error], causes *starter.Causes) error {
	packer, err := store.Pack(out, o.Path)
	if err != nil {
		return err
	}
	if packer != nil {
		out = packer
	}
	to := bufio.NewWriterSize(out, 256<<10)
	for line, err := range from {
		if err == nil && len(line) == 0 {
			err = to.Flush()
			if packer != nil && err == nil {
				err = packer.Flush()
			}
			if err == nil {
				continue
			}
		}
		if err != nil {
			return errors.Join(err, to.Flush())
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if line, err = store.Plain(line); err == nil {
			line, err = o.pick(line, causes)
		}
		if err != nil {
			return err
		}
		if line == nil {
			continue
		}
		if !o.Exact {
			line = text.Unescaped(line)
		}
		if _, err := to.Write(line); err != nil {
			return err
		}
		if err := to.WriteByte('\n'); err != nil {
			return err
		}
	}
	if err := to.Flush(); err != nil || packer == nil {
		return err
	}
	return packer.Close()
}

// pick is what is written of a result, or nil. It decodes as little as it can.
func (o Output) pick(line []byte, causes *starter.Causes) ([]byte, error) {
	if err := causes.AddLine(line); err != nil {
		return nil, err
	}
	if o.Failed && !starter.IsFailure(line) {
		return nil, nil
	}
	if !o.Values {
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
