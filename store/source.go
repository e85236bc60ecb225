package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
)

// PutSource puts a spooled input into the store as sources/<hash>.jsonl with its index
// beside it. The store holds the same items once, however often they are put. Where the
// size of the lines, or any byte of the index, is not that of the input, both are put
// anew. The lines there are not read for it: whoever reads them checks them against the
// index, and deletes it if they differ.
func (s *Store) PutSource(ctx context.Context, in *Spooled) (contract.Source, error) {
	key := names.Sources + "/" + in.Hash
	src := contract.Source{URL: s.Locate(key + ".jsonl"), Index: key + ".index", Items: in.Items, Bytes: in.Bytes, Hash: in.Hash}
	there, err := s.holdsSource(ctx, in, src)
	if err != nil || there {
		return src, err
	}
	// The index comes last: where it is, the lines are whole.
	for _, file := range []struct{ path, key string }{{in.lines, src.URL}, {in.index, src.Index}} {
		if err := s.upload(ctx, file.path, file.key); err != nil {
			return contract.Source{}, err
		}
	}
	s.forgetIndex(src)
	return src, nil
}

// holdsSource reports whether a spooled input is in the store. Objects whose key is gone,
// or that are not encrypted although the store has keys, do not count.
func (s *Store) holdsSource(ctx context.Context, in *Spooled, src contract.Source) (bool, error) {
	same := false
	lines, err := s.open(ctx, src.URL, 0, int64(len(sealMagic)))
	if err == nil {
		same = lines.body.Size() == in.Bytes
		lines.Close()
	}
	if same {
		same, err = s.sameIndex(ctx, in, src)
	}
	var wrong *KeyError
	if errors.Is(err, fs.ErrNotExist) || damageOf(err) != nil || s.keys != nil && errors.As(err, &wrong) {
		return false, nil
	}
	return same, err
}

func (s *Store) sameIndex(ctx context.Context, in *Spooled, src contract.Source) (bool, error) {
	own, err := os.Open(in.index)
	if err != nil {
		return false, fmt.Errorf("read the index of the copied input: %w", err)
	}
	defer own.Close()
	there, err := s.open(ctx, src.Index, 0, -1)
	if err != nil {
		return false, err
	}
	defer there.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, end := io.ReadFull(own, a)
		m, err := io.ReadFull(there, b)
		switch {
		case end != nil && end != io.EOF && end != io.ErrUnexpectedEOF:
			return false, fmt.Errorf("read the index of the copied input: %w", end)
		case err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF):
			return false, err
		case !bytes.Equal(a[:n], b[:m]):
			return false, nil
		case end != nil:
			return true, nil
		}
	}
}

func (s *Store) upload(ctx context.Context, path, name string) error {
	key, err := s.Key(name)
	if err != nil {
		return err
	}
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
func (s *Store) IndexSource(ctx context.Context, name, indexKey string) (contract.Source, error) {
	name, values := names.CutValues(name)
	format, err := FormatOf(name)
	if values {
		format, err = Values, nil
	}
	if err != nil {
		return contract.Source{}, err
	}
	in, err := s.openSource(ctx, name, 0, -1)
	if err != nil {
		return contract.Source{}, err
	}
	defer in.Close()
	hash := sha256.New()
	from, packed, err := openItems(io.TeeReader(in, hash), in.url, format, 0)
	if err != nil {
		return contract.Source{}, err
	}
	src := contract.Source{URL: in.url, Index: indexKey, Bytes: in.body.Size(), Values: values}
	x := indexing{from: from, name: in.url, hash: hash}
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
func (s *Store) IndexRows(ctx context.Context, rows io.Reader, table string, bytes int64, indexKey string) (contract.Source, error) {
	hash := sha256.New()
	from, _, err := openItems(io.TeeReader(rows, hash), table, JSONLines, 0)
	if err != nil {
		return contract.Source{}, err
	}
	x := indexing{from: from, name: table, hash: hash, growth: csvGrowth * packedGrowth}
	return s.index(ctx, x, contract.Source{Index: indexKey, Bytes: bytes})
}

// indexing is a source whose index is written.
type indexing struct {
	from itemReader
	name string
	hash hash.Hash
	// growth is how much larger its items may become as JSON lines, or 0 if they are read where they lie.
	growth int64
}

// index writes the index of a source, and its items if they are not read where they lie.
func (s *Store) index(ctx context.Context, x indexing, src contract.Source) (_ contract.Source, err error) {
	if src.Index, err = s.Key(src.Index); err != nil {
		return contract.Source{}, err
	}
	indexFile, err := s.Create(ctx, src.Index)
	if err != nil {
		return contract.Source{}, err
	}
	defer indexFile.Abort()
	marks := newIndexWriter(indexFile)
	if x.growth > 0 {
		src, err = s.putLines(ctx, x, src, marks)
	} else {
		src.Items, src.Bytes, err = markItems(x.from, marks)
	}
	if err != nil {
		return contract.Source{}, err
	}
	if err := indexFile.Close(); err != nil {
		return contract.Source{}, err
	}
	src.Hash = hex.EncodeToString(x.hash.Sum(nil)[:16])
	s.forgetIndex(src)
	return src, nil
}

// putLines writes the items beside the index, as the source.
func (s *Store) putLines(ctx context.Context, x indexing, src contract.Source, marks *indexWriter) (contract.Source, error) {
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

// markItems writes the index of items that are read where they lie.
func markItems(from itemReader, marks *indexWriter) (count, size int64, err error) {
	for {
		_, at, err := from.next()
		if err == io.EOF {
			return count, at.offset, marks.finish(at)
		}
		if err != nil {
			return 0, 0, err
		}
		marks.mark(at)
		count++
	}
}
