package store

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
	"regexp"
	"slices"
	"strings"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
)

// heldBytes is how large a stretch of a source may be that is held in memory while it is
// checked. A larger one is read twice. Only tests change it.
var heldBytes = int64(16 << 20)

// Items streams the items start up to but not including end, as Unwrap takes them. Each
// is the caller's to keep. After an error nothing follows. What is damaged is a
// *SourceError, and no item of it is given.
func (s *Store) Items(ctx context.Context, src contract.Source, start, end int64) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		if err := s.eachItem(ctx, src, start, end, func(item []byte) bool { return yield(item, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

// eachItem calls f with each item, which f may keep, until f returns false.
func (s *Store) eachItem(ctx context.Context, src contract.Source, start, end int64, f func([]byte) bool) (err error) {
	if start < 0 || end < start || end > src.Items {
		return fmt.Errorf("items %d to %d are not all in %s, which has %d", start, end, src.URL, src.Items)
	}
	if start == end {
		return nil
	}
	defer func() {
		if err != nil {
			s.forgetIndex(src)
		}
	}()
	x, err := s.loadIndex(ctx, src)
	if err != nil {
		return err
	}
	marks, first, err := s.readMarks(ctx, src, x, start, end)
	if err != nil {
		return err
	}
	from, to := marks[0], marks[len(marks)-1]
	o, err := s.openSource(ctx, src.URL, from.offset, to.offset-from.offset)
	if err != nil {
		return s.blame(ctx, src, src.URL, err)
	}
	defer o.Close()
	if o.body.Size() != x.end.offset {
		return s.changed(ctx, src, src.URL, fmt.Sprintf("it has %d bytes, and had %d", o.body.Size(), x.end.offset))
	}
	r := &stretchReader{s: s, src: src, o: o, lines: jsonLines{name: src.URL}}
	r.lines.r = bufio.NewReaderSize(nil, int(min(to.offset-from.offset, 256<<10)))
	for i, until := range marks[1:] {
		low := first + int64(i)*x.stride
		if err := r.open(ctx, marks[i], until); err != nil {
			return err
		}
		for at := low; at < min(low+x.stride, x.items, end); at++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			item, err := r.next()
			if err != nil {
				return err
			}
			if at >= start && !f(r.lines.detach(item)) {
				return nil
			}
		}
	}
	return nil
}

// stretchReader reads the items of a source from one mark of its index to the next. It
// checks the bytes before it gives any item.
type stretchReader struct {
	s   *Store
	src contract.Source
	o   *object
	// rest is what of a large stretch is not read yet; buffer holds any other.
	rest   io.Reader
	buffer []byte
	lines  jsonLines
}

// open checks the next stretch and makes it the one whose items are read.
func (r *stretchReader) open(ctx context.Context, from, until position) error {
	if r.rest != nil {
		if _, err := io.Copy(io.Discard, r.rest); err != nil {
			return r.s.blame(ctx, r.src, r.src.URL, err)
		}
		r.rest = nil
	}
	size, at := until.offset-from.offset, from
	var body io.Reader
	var err error
	if size > heldBytes {
		err = r.s.pass(ctx, r.src, &at, size)
		r.rest = io.LimitReader(r.o, size)
		body = r.rest
	} else {
		r.buffer = slices.Grow(r.buffer[:0], int(size))[:size]
		_, err = io.ReadFull(r.o, r.buffer)
		at.pass(r.buffer)
		body = bytes.NewReader(r.buffer)
	}
	if err != nil {
		return r.s.blame(ctx, r.src, r.src.URL, err)
	}
	if at != until {
		return r.s.changed(ctx, r.src, r.src.URL, fmt.Sprintf("bytes %d to %d are others", from.offset, until.offset-1))
	}
	r.lines.r.Reset(body)
	r.lines.at, r.lines.left = from, size
	return nil
}

func (r *stretchReader) next() (item []byte, err error) {
	if r.src.Values {
		item, _, err = valueLines{&r.lines}.next()
	} else {
		item, _, err = r.lines.next()
	}
	if err == io.EOF {
		err = &SourceError{Name: r.src.URL, Problem: "it has fewer items than its index " + r.src.Index, Hint: "start the map anew"}
	}
	return item, err
}

// pass moves a position behind the next bytes of a source.
func (s *Store) pass(ctx context.Context, src contract.Source, at *position, size int64) error {
	o, err := s.openSource(ctx, src.URL, at.offset, size)
	if err != nil {
		return err
	}
	defer o.Close()
	_, err = io.Copy(at, o)
	return err
}

// blame is an error of reading an object of a source. It is a *SourceError where the
// object is to blame, and not the store.
func (s *Store) blame(ctx context.Context, src contract.Source, name string, err error) error {
	var mistake *SourceError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if there, _ := s.Exists(ctx, names.Identity); there { // else the whole store is away
			if name == src.Index {
				return s.damaged(src, src.URL, err.Error()+", as after a worker found damage")
			}
			return s.damaged(src, name, "it is gone")
		}
	case errors.As(err, &mistake):
		return s.changed(ctx, src, src.URL, mistake.Problem)
	case damageOf(err) != nil:
		return s.damaged(src, name, damageOf(err).Error())
	}
	return err
}

// damageOf is the part of an error of reading an object that blames the object itself, or
// nil.
func damageOf(err error) error {
	for _, damage := range []error{errBeyond, errSealBroken} {
		if errors.Is(err, damage) {
			return damage
		}
	}
	return nil
}

// changed is damaged where neither the size nor the ends of the index show it. It deletes
// the index of a source that a client put here, so that neither a client nor a worker
// takes the source over as it is.
func (s *Store) changed(ctx context.Context, src contract.Source, name, problem string) error {
	if _, put := s.putHash(src.URL); put && s.ours(src) {
		if err := s.Delete(ctx, src.Index); err != nil {
			return err
		}
	}
	return s.damaged(src, name, problem)
}

// damaged is the error about an object of a source, the lines or the index, that is not
// as it was.
func (s *Store) damaged(src contract.Source, name, problem string) error {
	_, put := s.putHash(src.URL)
	hint := "leave a map's source alone until it is done; start the map anew"
	switch {
	case s.ours(src) && put:
		hint = "give the same command again, which puts it there anew; where a program named it, delete it and put it there again"
	case s.ours(src) || name == src.Index:
		hint = "start the map again, which writes it anew; what has finished is kept"
	}
	if key, err := s.Key(name); err == nil {
		name = s.Locate(key)
	}
	return &SourceError{Name: name, Problem: "damaged, or changed since it was indexed: " + problem, Hint: hint}
}

// ours reports whether the lines of a source were written beside their index.
func (s *Store) ours(src contract.Source) bool {
	lines, err := s.Key(src.URL)
	index, err2 := s.Key(src.Index)
	return err == nil && err2 == nil && strings.TrimSuffix(lines, ".jsonl") == strings.TrimSuffix(index, ".index")
}

var putName = regexp.MustCompile(`^sources/([0-9a-f]{64})\.jsonl$`)

// putHash is the hash in the name of a source that PutSource put here.
func (s *Store) putHash(name string) (hash string, put bool) {
	key, err := s.Key(name)
	found := putName.FindStringSubmatch(key)
	if err != nil || found == nil {
		return "", false
	}
	return found[1], true
}
