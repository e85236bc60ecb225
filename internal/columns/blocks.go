package columns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gpumux/gpumux/internal/items"
)

// A file is read in blocks of at most so many bytes, and all that are kept have about as
// many together.
const (
	maxBlock  = 2 << 20
	minBlock  = 64 << 10
	keptBytes = 64 << 20
)

// blocks reads a file in blocks, since each read may be a request to a server.
type blocks struct {
	from Source
	// size is the file's, each that of a block.
	size, each int64
	// kept are at most maxKept blocks, the one that was used last at the end.
	kept    []block
	maxKept int
	// err is why the file could not be read.
	err error
}

type block struct {
	number int64
	data   []byte
}

// keepFor settles how large blocks are for so many readers that each go forward.
func (b *blocks) keepFor(readers int) {
	each := max(minBlock, min(maxBlock, keptBytes/int64(readers+1)))
	if each != b.each {
		b.kept = nil
	}
	b.each, b.maxKept = each, readers+1
}

// ReadAt is io.ReaderAt's.
func (b *blocks) ReadAt(data []byte, offset int64) (n int, err error) {
	for n < len(data) {
		at := offset + int64(n)
		if at >= b.size {
			return n, io.EOF
		}
		found, err := b.block(at / b.each)
		if err != nil {
			return n, err
		}
		n += copy(data[n:], found[at%b.each:])
	}
	return n, nil
}

// block reads a block, in the place of the one that was not used for longest.
func (b *blocks) block(number int64) ([]byte, error) {
	var data []byte
	if i := slices.IndexFunc(b.kept, func(k block) bool { return k.number == number }); i >= 0 {
		found := b.kept[i]
		b.kept = append(slices.Delete(b.kept, i, i+1), found)
		return found.data, nil
	}
	if len(b.kept) == b.maxKept {
		data = b.kept[0].data
		b.kept = slices.Delete(b.kept, 0, 1)
	}
	start := number * b.each
	data = slices.Grow(data[:0], int(b.each))[:min(b.each, b.size-start)]
	if n, err := b.from.ReadAt(data, start); n < len(data) {
		if err == io.EOF {
			return nil, io.ErrUnexpectedEOF
		}
		b.err = err
		return nil, err
	}
	b.kept = append(b.kept, block{number, data})
	return data, nil
}

// blame runs f. Where reading went well, its error or panic is a *items.SourceError.
func (b *blocks) blame(ctx context.Context, name string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it makes no sense: %v", p)
		}
		switch {
		case err == nil || errors.As(err, new(*items.SourceError)):
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case b.err != nil:
			err = b.err
		default:
			err = &items.SourceError{Name: name, Problem: fmt.Sprintf("not read as %s: %v", FormatOf(name), err),
				Hint: "check that the file is whole, and that its ending says what it is"}
		}
	}()
	return f()
}
