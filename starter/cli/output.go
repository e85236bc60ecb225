package cli

import (
	"bufio"
	"bytes"
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

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/store"
)

// output is where results go: a file that appears whole or not at all, or standard output.
type output struct {
	// path is empty for standard output.
	path string
	app  *app
}

// chooseOutput reads --out. Without it results go down the pipe, or on a terminal into a file that name makes.
func (a *app) chooseOutput(flag string, json bool) (output, error) {
	toScreen := isTerminal(a.Stdout)
	switch {
	case flag == "-" && json:
		return output{}, usage("--out -: --json has standard output for the summary; give --out FILE")
	case flag == "-":
		return output{app: a}, nil
	case flag == "" && !json && !toScreen:
		return output{app: a}, nil
	case flag == "":
		return output{app: a, path: "?"}, nil
	case strings.Contains(flag, "://"):
		return output{}, usage("--out %s: results are fetched into a file here; leave --out away and use --detach to let them lie in the store", flag)
	case resultsAs(flag) == ".csv" || resultsAs(flag) == ".tsv":
		return output{}, usage("--out %s: results are JSON lines; name the file .jsonl", flag)
	}
	o := output{app: a, path: flag}
	return o, o.check()
}

// resultsAs is the ending that names the format of a file, without that of its compression.
func resultsAs(name string) string {
	ending := strings.ToLower(filepath.Ext(name))
	if packer, err := store.Pack(io.Discard, name); err == nil && packer != nil {
		ending = strings.ToLower(filepath.Ext(strings.TrimSuffix(name, filepath.Ext(name))))
	}
	return ending
}

// named puts the default name in place when the user gave none.
func (o output) named(id string) (output, error) {
	if o.path != "?" {
		return o, nil
	}
	o.path = id + ".results.jsonl"
	return o, o.check()
}

// check finds out before any work whether the file can be written.
func (o output) check() error {
	place, err := placeOf(o.path)
	switch {
	case err != nil:
	case place.folder:
		return usage("--out %s is a folder; name a file in it", o.path)
	case place.stream || place.mode != 0:
		err = unix.Access(place.path, unix.W_OK)
	}
	if err == nil && !place.stream {
		var trial *os.File
		if trial, err = place.create(); err == nil {
			err = errors.Join(trial.Close(), os.Remove(trial.Name()))
		}
	}
	if err != nil {
		return usage("--out %s cannot be written: %v", o.path, err)
	}
	return nil
}

// filter says which results to write, and what of them.
type filter struct {
	// values writes the value alone, null for a failed item; failed leaves out what succeeded.
	values, failed bool
}

// write fetches the results and returns why items failed.
func (o output) write(ctx context.Context, s *starter.Starter, summary gpumux.Summary, f filter) (starter.Causes, error) {
	return o.lines(ctx, s.Lines(ctx, summary), f)
}

// lines writes results as they come. They go on to block no longer than ctx lasts.
func (o output) lines(ctx context.Context, from iter.Seq2[[]byte, error], f filter) (starter.Causes, error) {
	if o.path == "" {
		failed, err := copyLines(ctx, &unblocked{ctx, o.app.Stdout}, from, f)
		if err != nil {
			return starter.Causes{}, fmt.Errorf("write the results: %w", err)
		}
		return failed, nil
	}
	failed, err := o.file(ctx, from, f)
	var at *fs.PathError
	if errors.As(err, &at) && at.Path == o.path { // it says where already
		return starter.Causes{}, err
	}
	if err != nil {
		return starter.Causes{}, fmt.Errorf("write %s: %w", o.path, err)
	}
	return failed, nil
}

// file writes a file under another name first, or into what is there when that is a device or a pipe.
func (o output) file(ctx context.Context, from iter.Seq2[[]byte, error], f filter) (starter.Causes, error) {
	place, err := placeOf(o.path)
	if err != nil {
		return starter.Causes{}, err
	}
	if place.stream {
		to, err := place.open(ctx)
		if err != nil {
			return starter.Causes{}, err
		}
		failed, err := o.copy(ctx, &unblocked{ctx, to}, from, f)
		if ctx.Err() != nil {
			return starter.Causes{}, err // a write may still block, and closing with it
		}
		return failed, errors.Join(err, to.Close())
	}
	file, err := place.create()
	if err != nil {
		return starter.Causes{}, err
	}
	defer os.Remove(file.Name()) // it has another name by then when all went well
	defer file.Close()
	failed, err := o.copy(ctx, file, from, f)
	if err != nil {
		return starter.Causes{}, err
	}
	if err := file.Close(); err != nil {
		return starter.Causes{}, err
	}
	return failed, os.Rename(file.Name(), place.path)
}

// copy writes results, compressed where the file's name says so.
func (o output) copy(ctx context.Context, to io.Writer, from iter.Seq2[[]byte, error], f filter) (starter.Causes, error) {
	packer, err := store.Pack(to, o.path)
	if err != nil {
		return starter.Causes{}, err
	}
	if packer == nil {
		return copyLines(ctx, to, from, f)
	}
	failed, err := copyLines(ctx, packer, from, f)
	if err != nil {
		return starter.Causes{}, err
	}
	return failed, packer.Close()
}

// copyLines decodes only what it must: the failed items, and every line for --values. An empty line stands for a pause, before
// which everything is written out.
func copyLines(ctx context.Context, out io.Writer, from iter.Seq2[[]byte, error], f filter) (starter.Causes, error) {
	to := bufio.NewWriterSize(out, 256<<10)
	var causes starter.Causes
	for line, err := range from {
		if err == nil && len(line) == 0 {
			err = to.Flush()
			if packer, ok := out.(store.Packer); ok && err == nil {
				err = packer.Flush()
			}
			if err == nil {
				continue
			}
		}
		if err != nil {
			return starter.Causes{}, errors.Join(err, to.Flush())
		}
		if err := context.Cause(ctx); err != nil {
			return starter.Causes{}, err
		}
		isFault := failedLine(line)
		if isFault {
			if err := causes.AddLine(line); err != nil {
				return causes, err
			}
		}
		if f.failed && !isFault {
			continue
		}
		if f.values {
			var result struct {
				Value json.RawMessage `json:"value"`
			}
			if err := json.Unmarshal(line, &result); err != nil {
				return starter.Causes{}, fmt.Errorf("read a result: %w", err)
			}
			if line = result.Value; line == nil {
				line = []byte("null")
			}
		}
		if _, err := to.Write(line); err != nil {
			return starter.Causes{}, err
		}
		if err := to.WriteByte('\n'); err != nil {
			return starter.Causes{}, err
		}
	}
	return causes, to.Flush()
}

// failedLine tells from the beginning of a line, {"index":7,"fault":…, whether the item failed.
func failedLine(line []byte) bool {
	_, rest, ok := bytes.Cut(line[:min(len(line), 48)], []byte{','})
	return ok && bytes.HasPrefix(rest, []byte(`"fault"`))
}
