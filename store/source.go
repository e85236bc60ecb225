package store

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
)

// PutSource puts a spooled input into the store as sources/<hash>.jsonl with its index beside it. The store holds the same items
// once, however often they are put.
func (s *Store) PutSource(ctx context.Context, in *Spooled) (gpumux.Source, error) {
	key := names.Sources + "/" + in.Hash
	src := gpumux.Source{URL: s.Locate(key + ".jsonl"), Index: key + ".index", Items: in.Items, Bytes: in.Bytes, Hash: in.Hash}
	// The index comes last: where it is, the lines are whole.
	for _, file := range []struct{ path, key string }{{in.lines, key + ".jsonl"}, {in.index, key + ".index"}} {
		there, err := s.readable(ctx, file.key)
		if err != nil {
			return gpumux.Source{}, err
		}
		if there {
			continue
		}
		if err := s.upload(ctx, file.path, file.key); err != nil {
			return gpumux.Source{}, err
		}
	}
	return src, nil
}

// readable reports whether there is an object that this store can read. An object whose key is gone, or that is not encrypted
// although the store has keys, has to be written anew.
func (s *Store) readable(ctx context.Context, key string) (bool, error) {
	o, err := s.open(ctx, key, 0, int64(len(sealMagic)))
	var wrong *KeyError
	switch {
	case errors.Is(err, fs.ErrNotExist), s.keys != nil && (errors.As(err, &wrong) || errors.Is(err, errSealBroken)):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, o.Close()
}

func (s *Store) upload(ctx context.Context, path, key string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the copied input: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read the copied input: %w", err)
	}
	w, err := s.create(ctx, key, creation{bytes: info.Size(), own: true})
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.Copy(w, f); err != nil {
		return err
	}
	return w.Close()
}

// How much larger than its file a source may become as plain JSON lines. Lines repeat the header's names, and text seldom
// compresses better than to a sixteenth. An upload that grows far beyond fails.
const (
	csvGrowth    = 4
	packedGrowth = 16
)

// IndexSource checks every item of a file in the store and writes its index. The file is .jsonl, .ndjson, .csv or .tsv, plain or
// with .gz or .zst behind it. IndexSource writes the items of CSV and compressed files as JSON lines beside the index, and returns
// them as the Source; else the Source is the file itself. Of a results file, as gpumux.ValuesOf names it, the values are the items.
// Mistakes in the file are a *SourceError.
func (s *Store) IndexSource(ctx context.Context, name, indexKey string) (gpumux.Source, error) {
	name, values := names.CutValues(name)
	format, err := FormatOf(name)
	if values {
		format, err = Values, nil
	}
	if err != nil {
		return gpumux.Source{}, err
	}
	in, err := s.openSource(ctx, name, 0, -1)
	if err != nil {
		return gpumux.Source{}, err
	}
	defer in.Close()
	hash := sha256.New()
	from, packed, err := openItems(io.TeeReader(in, hash), in.url, format, 0)
	if err != nil {
		return gpumux.Source{}, err
	}
	src := gpumux.Source{URL: in.url, Index: indexKey, Bytes: in.body.Size(), Values: values}
	x := indexing{from: from, name: in.url, hash: hash, modified: in.body.ModTime().Unix()}
	if format != JSONLines && format != Values || packed {
		x.growth = csvGrowth
		if packed {
			x.growth *= packedGrowth
		}
	}
	return s.index(ctx, x, src)
}

// IndexRows is IndexSource for a table in the store, of so many bytes, whose rows come as JSON lines; they are written beside the index.
// The Source's Hash is of the lines, which tells other columns of the same table apart.
func (s *Store) IndexRows(ctx context.Context, rows io.Reader, table string, bytes int64, indexKey string) (gpumux.Source, error) {
	hash := sha256.New()
	from, _, err := openItems(io.TeeReader(rows, hash), table, JSONLines, 0)
	if err != nil {
		return gpumux.Source{}, err
	}
	x := indexing{from: from, name: table, hash: hash, growth: csvGrowth * packedGrowth}
	return s.index(ctx, x, gpumux.Source{Index: indexKey, Bytes: bytes})
}

// indexing is a source whose index is written.
type indexing struct {
	from itemReader
	name string
	hash hash.Hash
	// modified is when the file was changed, in seconds.
	modified int64
	// growth is how much larger its items may become as JSON lines, or 0 if they are read where they lie.
	growth int64
}

// index writes the index of a source, and its items if they are not read where they lie.
func (s *Store) index(ctx context.Context, x indexing, src gpumux.Source) (_ gpumux.Source, err error) {
	if src.Index, err = s.Key(src.Index); err != nil {
		return gpumux.Source{}, err
	}
	indexFile, err := s.Create(ctx, src.Index)
	if err != nil {
		return gpumux.Source{}, err
	}
	defer indexFile.Abort()
	marks := newIndexWriter(indexFile)
	if x.growth > 0 {
		x.modified = 0
		src, err = s.putLines(ctx, x, src, marks)
	} else {
		src.Items, err = markItems(x.from, marks)
	}
	if err != nil {
		return gpumux.Source{}, err
	}
	if err := errors.Join(marks.finish(src.Bytes, x.modified), indexFile.Close()); err != nil {
		return gpumux.Source{}, err
	}
	src.Hash = hex.EncodeToString(x.hash.Sum(nil)[:16])
	s.forgetIndex(src)
	return src, nil
}

// putLines writes the items beside the index, as the source.
func (s *Store) putLines(ctx context.Context, x indexing, src gpumux.Source, marks *indexWriter) (gpumux.Source, error) {
	key := strings.TrimSuffix(src.Index, ".index") + ".jsonl"
	w, err := s.create(ctx, key, creation{bytes: x.growth * src.Bytes})
	if err != nil {
		return src, err
	}
	defer w.Abort()
	src.URL = s.Locate(key)
	var to io.Writer = w
	if s.home.dir != "" {
		to = &spaceGuard{w: w, dir: s.home.dir}
	}
	src.Items, src.Bytes, err = copyItems(x.from, x.name, storeFailed, bufio.NewWriterSize(to, 256<<10), marks)
	if err != nil {
		return src, err
	}
	return src, w.Close()
}

func storeFailed(name string, err error) error {
	return fmt.Errorf("copy %s into the store: %w; make room there", name, err)
}

func markItems(from itemReader, marks *indexWriter) (count int64, err error) {
	for {
		_, offset, err := from.next()
		if err == io.EOF {
			return count, nil
		}
		if err != nil {
			return 0, err
		}
		marks.mark(offset)
		count++
	}
}

// Items streams the items start up to but not including end, as Unwrap takes them. Each is the caller's to keep. After an error nothing follows.
func (s *Store) Items(ctx context.Context, src gpumux.Source, start, end int64) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		if err := s.eachItem(ctx, src, start, end, func(item []byte) bool { return yield(item, nil) }); err != nil {
			s.forgetIndex(src)
			yield(nil, err)
		}
	}
}

// eachItem calls f with each item, which f may keep, until f returns false.
func (s *Store) eachItem(ctx context.Context, src gpumux.Source, start, end int64, f func([]byte) bool) error {
	if start < 0 || end < start || end > src.Items {
		return fmt.Errorf("items %d to %d are not all in %s, which has %d", start, end, src.URL, src.Items)
	}
	if start == end {
		return nil
	}
	x, err := s.loadIndex(ctx, src)
	if err != nil {
		return err
	}
	marks, first, err := s.readMarks(ctx, src, x, start, end)
	if err != nil {
		return err
	}
	from, to := marks[0], marks[len(marks)-1]
	o, err := s.openSource(ctx, src.URL, from, to-from)
	if err != nil {
		return err
	}
	defer o.Close()
	if o.body.Size() != x.bytes || x.modified != 0 && o.body.ModTime().Unix() != x.modified {
		return fmt.Errorf("source %s changed after it was indexed; leave a map's source alone until it is done, or start anew",
			src.URL)
	}
	buffer := int(min(to-from, 256<<10))
	lines := &jsonLines{lineReader: lineReader{r: bufio.NewReaderSize(o, buffer)}, name: src.URL, offset: from}
	next := lines.next
	if src.Values {
		next = valueLines{lines}.next
	}
	for at := first; at < end; at++ {
		if n := at - first; n%x.stride == 0 {
			lines.left = marks[n/x.stride+1] - marks[n/x.stride]
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		item, _, err := next()
		if err == io.EOF {
			return indexDamaged(src, "item %d is not where it says", at)
		}
		if err != nil {
			return err
		}
		if at >= start && !f(lines.detach(item)) {
			return nil
		}
	}
	return nil
}
