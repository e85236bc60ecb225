// Package items reads inputs: items in files of several formats, and sources in a store.
//
// It owns the formats, what is a mistake in an input, and the index by which any stretch
// of a source is read and checked. It never decodes an item and never decides what runs.
// Nothing runs between calls.
package items

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
)

// Sources are the inputs that lie in a bucket. Many goroutines may use them.
type Sources struct{ in *objects.Bucket }

func In(b *objects.Bucket) *Sources { return &Sources{b} }

// Put puts a spooled input into the bucket as sources/<hash>.jsonl with its index beside
// it, once for the same items. The lines there are not read for it: whoever reads them
// checks them against the index, and deletes a wrong one, so that both are put anew.
func (s *Sources) Put(ctx context.Context, in *Spooled) (contract.Source, error) {
	src, whole, err := s.known(ctx, in.Hash)
	if err != nil || whole {
		return src, err
	}
	src.Items, src.Bytes = in.Items, in.Bytes
	// The index comes last: where it is, the lines are whole.
	for _, file := range []struct {
		from *os.File
		key  string
	}{{in.lines, src.URL}, {in.index, src.Index}} {
		if err := s.upload(ctx, file.from, file.key); err != nil {
			return contract.Source{}, err
		}
	}
	return src, nil
}

func readBack(err error) error { return fmt.Errorf("read the copied input: %w", err) }

// PutFile copies a file to a key, unless it has an object, and returns that one's name.
func (s *Sources) PutFile(ctx context.Context, path, key string) (name string, err error) {
	exists, err := s.in.Exists(ctx, key)
	if err != nil || exists {
		return s.in.Locate(key), err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", readBack(err)
	}
	defer file.Close()
	return s.in.Locate(key), s.upload(ctx, file, key)
}

func (s *Sources) upload(ctx context.Context, from *os.File, key string) error {
	info, err := from.Stat()
	if err != nil {
		return readBack(err)
	}
	return s.in.Put(ctx, key, io.NewSectionReader(from, 0, info.Size()), objects.Creation{Bytes: info.Size(), Reserved: true})
}

// Find is the source that a name means, with its index at indexKey. One that Put has put
// there is known by its own index and not read.
func (s *Sources) Find(ctx context.Context, name, indexKey string) (contract.Source, error) {
	key, err := s.in.Key(name)
	found := putName.FindStringSubmatch(key)
	if err != nil || found == nil {
		return s.index(ctx, name, indexKey)
	}
	src, whole, err := s.known(ctx, found[1])
	if err == nil && !whole {
		err = s.damaged(name, "its size, or its index "+s.in.Locate(src.Index)+", is not what was put there")
	}
	return src, err
}

// known is what Put has put there, as the end of its index says, and whether it is whole.
func (s *Sources) known(ctx context.Context, hash string) (src contract.Source, whole bool, err error) {
	key := names.Sources + "/" + hash
	src = contract.Source{URL: s.in.Locate(key + ".jsonl"), Index: key + ".index", Hash: hash}
	if src.Items, src.Bytes, err = s.indexEnd(ctx, src.Index); err == nil {
		var size int64
		size, err = s.in.Size(ctx, src.URL)
		whole = size == src.Bytes
	}
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*objects.DamageError)) {
		return src, false, nil
	}
	return src, whole, err
}

// index checks every item of a file in the bucket and writes its index. Of CSV and of
// compressed files it writes JSON lines beside that, which are the Source then. The items
// of a results file, named by gpumux.ValuesOf or FailedOf, are values or failed items.
func (s *Sources) index(ctx context.Context, name, indexKey string) (_ contract.Source, err error) {
	name, values, failed := names.CutResults(name)
	defer func() {
		if damage, ok := errors.AsType[*objects.DamageError](err); ok {
			err = &gpumux.SourceError{Name: name, Problem: damage.Error(), Hint: "delete it, and put it there again"}
		}
	}()
	format, err := FormatOf(name)
	switch {
	case failed:
		format, err = Failed, nil
	case values:
		format, err = Values, nil
	}
	if err != nil {
		return contract.Source{}, err
	}
	in, err := s.in.Read(ctx, name, 0, -1)
	if err != nil {
		return contract.Source{}, err
	}
	defer in.Close()
	sum := sha256.New()
	from, packed, err := openItems(io.TeeReader(in, sum), Input{Name: in.URL(), Format: format})
	if err != nil {
		return contract.Source{}, err
	}
	src := contract.Source{URL: in.URL(), Index: indexKey, Bytes: in.Size(), Values: values, Failed: failed}
	return s.writeIndex(ctx, src, from, sum, format != JSONLines && !values || packed)
}

// IndexRows writes the rows of a table of so many bytes, which come as JSON lines, beside
// their index. The Source's Hash is the hash of the lines.
func (s *Sources) IndexRows(ctx context.Context, rows io.Reader, table string, bytes int64, indexKey string) (contract.Source, error) {
	sum := sha256.New()
	from, _, err := openItems(io.TeeReader(rows, sum), Input{Name: table})
	if err != nil {
		return contract.Source{}, err
	}
	return s.writeIndex(ctx, contract.Source{Index: indexKey, Bytes: bytes}, from, sum, true)
}

// writeIndex writes the index of a source that the sum identifies. Copied: the items are
// written beside the index, as the source.
func (s *Sources) writeIndex(
	ctx context.Context, src contract.Source, from itemReader, sum hash.Hash, copied bool,
) (_ contract.Source, err error) {
	if src.Index, err = s.in.Key(src.Index); err != nil {
		return contract.Source{}, err
	}
	index, err := s.in.Create(ctx, src.Index, objects.Creation{})
	if err != nil {
		return contract.Source{}, err
	}
	defer index.Abort()
	if copied {
		src, err = s.putLines(ctx, src, from, index)
	} else {
		src.Items, src.Bytes, err = markItems(from, newIndexWriter(index))
	}
	if err != nil {
		return contract.Source{}, err
	}
	src.Hash = hex.EncodeToString(sum.Sum(nil)[:16])
	return src, index.Close()
}

// unpackedGrowth is how many times larger than its file a source may be as JSON lines on
// S3, where an object is uploaded in so many pieces at most.
const unpackedGrowth = 64

// putLines writes the items beside the index, as the source.
func (s *Sources) putLines(ctx context.Context, src contract.Source, from itemReader, index io.Writer) (contract.Source, error) {
	key := strings.TrimSuffix(src.Index, ".index") + ".jsonl"
	file, err := s.in.Create(ctx, key, objects.Creation{Bytes: unpackedGrowth * src.Bytes})
	if err != nil {
		return src, err
	}
	defer file.Abort()
	to := newLineWriter(file, index)
	if err := to.copyItems(from, "the store"); err != nil {
		return src, err
	}
	src.URL, src.Items, src.Bytes = s.in.Locate(key), to.marks.items, to.at.offset
	return src, file.Close()
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

// blame is an error of reading an object of a source. It is a *gpumux.SourceError
// where the object is to blame, and not the store.
func (s *Sources) blame(ctx context.Context, name string, err error) error {
	if damage, ok := errors.AsType[*objects.DamageError](err); ok {
		return s.damaged(name, damage.Error())
	}
	if errors.Is(err, fs.ErrNotExist) {
		if exists, _ := s.in.Exists(ctx, names.Identity); exists { // else the whole store is away
			return s.damaged(name, "it is gone")
		}
	}
	return err
}

// damaged is the error about the lines or the index of a source. The index of one that
// Put put there is deleted, so that Put takes neither over.
func (s *Sources) damaged(name, problem string) error {
	hint := "leave a map's source alone until it is done; start the map anew"
	if key, err := s.in.Key(name); err == nil {
		name = s.in.Locate(key)
		if strings.HasPrefix(key, names.Sources+"/") {
			hint = "give the same command again, which puts it there anew; where a program named it, delete it and put it there again"
			// Where it cannot be deleted, the next command ends here as well.
			_ = s.in.Delete(context.Background(), strings.TrimSuffix(strings.TrimSuffix(key, ".jsonl"), ".index")+".index")
		}
	}
	return &gpumux.SourceError{Name: name, Problem: "damaged, or changed since it was indexed: " + problem, Hint: hint}
}

var putName = regexp.MustCompile(`^sources/([0-9a-f]{64})\.jsonl$`)
