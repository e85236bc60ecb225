package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

// skipped knows the items that have a result by their field key or, if that is "", as a
// whole.
type skipped struct {
	key   string
	ids   map[[sha256.Size]byte]bool
	count int64
	// rewrites says that the file of --out is among those of --skip.
	rewrites bool
}

func newSkipped(key string) *skipped { return &skipped{key: key, ids: map[[sha256.Size]byte]bool{}} }

// readItems gives a map its items, without those that have a result in the files of
// --skip. Of these the file of --out is none: with it the same command would be another
// map.
func (f *mapFlags) readItems(ctx context.Context, a *app, m *starter.Map) error {
	if len(f.skip) == 0 {
		return f.source.read(ctx, m)
	}
	s := newSkipped(f.input.Key)
	if err := s.read(ctx, f.skip, f.out); err != nil {
		var wrong *local.MistakeError
		if errors.As(err, &wrong) {
			err = usage("%s", strings.ReplaceAll(wrong.Problems[0], "--in", "--skip"))
		}
		return err
	}
	if s.rewrites {
		a.console.Note("note: %s does not count for --skip: it is the file of --out, and is written anew", f.out)
	}
	f.source.drop = s.drop
	err := f.source.read(ctx, m)
	if err == nil {
		a.console.Note("note: %s of %s items have a value in %s, and are left out", humanize.Comma(s.count), humanize.Comma(s.count+m.Spooled.Items), strings.Join(f.skip, ", "))
	}
	if err == nil && s.count > 0 && m.Spooled.Items == 0 {
		err = exitOK // a table without rows has no columns
	}
	return err
}

func (s *skipped) read(ctx context.Context, among []string, except string) error {
	var files []string
	for _, in := range among {
		found, err := []member{{path: in}}, error(nil)
		if isMany(in) {
			found, err = dataset(ctx, in)
		}
		if err != nil {
			return err
		}
		for _, file := range found {
			if sameFile(file.path, except) {
				s.rewrites = true
			} else {
				files = append(files, file.path)
			}
		}
	}
	results, _, err := source{in: files, columns: []string{"index", s.field(), "fault"}}.inputs(ctx)
	if err != nil {
		return err
	}
	tables, _, _ := source{in: files, columns: []string{cmp.Or(s.key, s.field())}}.inputs(ctx) // the same files
	for i, result := range results {
		results[i].Open = func() (io.ReadCloser, error) {
			rows, err := result.Open()
			if errors.As(err, new(*gpumux.SourceError)) { // it lacks a column of results
				rows, err = tables[i].Open()
			}
			return rows, err
		}
	}
	return items.EachItem(results, s.add)
}

// field is what a result has of its item.
func (s *skipped) field() string {
	if s.key == "" {
		return "item"
	}
	return "key"
}

// add takes a result, or another row with the key. It counts unless it failed.
func (s *skipped) add(row []byte, wrong *gpumux.SourceError) error {
	if wrong != nil {
		return wrong
	}
	fields := map[string]string{}
	text.EachField(row, func(name string, value []byte) bool { fields[name] = string(value); return true })
	id := fields[s.key]
	if fields["index"] != "" { // else a column "key" of somebody's own means what it likes
		id = cmp.Or(fields[s.field()], id)
	}
	if id == "" {
		return usage("--skip: a row has no %q to say whose result it is: %s; the map that wrote it needs the same --key, or --with-item", s.field(), text.Beginning(row))
	}
	status := text.FieldOf(json.RawMessage(fields["response"]), "status_code") // of OpenAI's batches
	for _, failed := range []string{fields["fault"], fields["error"], strings.TrimPrefix(string(status), "200")} {
		if failed != "" && failed != "null" && failed != `""` { // an empty cell of CSV
			return nil
		}
	}
	s.ids[identity([]byte(id))] = true
	return nil
}

func (s *skipped) drop(item []byte) bool {
	if s.key != "" {
		item = text.FieldOf(item, s.key)
	}
	found := len(item) > 0 && string(item) != "null" && s.ids[identity(item)]
	if found {
		s.count++
	}
	return found
}

// identity is the same for a value and for the text or the JSON that a table has of it.
func identity(value []byte) [sha256.Size]byte {
	for word := ""; len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &word) == nil; {
		value = []byte(word)
	}
	var plain bytes.Buffer
	if json.Compact(&plain, value) == nil {
		value = plain.Bytes()
	}
	return sha256.Sum256(value)
}
