package store

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gpumux/gpumux"
)

// partName names a part: <writer>.<number>.jsonl. A writer counts its parts without a gap.
type partName struct {
	writer string
	number int
}

func (p partName) String() string { return fmt.Sprintf("%s.%06d.jsonl", p.writer, p.number) }

func (p partName) key(folder string) string { return folder + "/" + p.String() }

// parsePart reads an object's name. It is not ok for other objects of the folder.
func parsePart(name string) (p partName, ok bool) {
	name, ok = strings.CutSuffix(name, ".jsonl")
	writer, digits, dot := strings.Cut(name, ".")
	if !ok || !dot || len(writer) != writerDigits || len(digits) < 6 || strings.Trim(writer, "0123456789abcdef") != "" {
		return partName{}, false
	}
	number, err := strconv.Atoi(digits)
	return partName{writer, number}, err == nil && number >= 0
}

// headBytes is the size of a part's first line, which says what follows it.
const headBytes = 160

// partWithArrays is the version of a part in which values are arrays.
const partWithArrays = 2

// partHead is the first line of a part.
type partHead struct {
	// Version is 1, or partWithArrays.
	Version int   `json:"part"`
	Items   int64 `json:"items"`
	// Least and Most are the first and the last index.
	Least int64 `json:"least"`
	Most  int64 `json:"most"`
	// Bytes is the size of the lines behind the head, Sum their CRC-32C.
	Bytes int64  `json:"bytes"`
	Sum   string `json:"crc32c"`
	// Full says that the part will not be replaced by a longer one.
	Full bool `json:"full"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// firstLine is the head padded with spaces.
func (h partHead) firstLine() []byte {
	text, _ := json.Marshal(h) // it always encodes
	return fmt.Appendf(nil, "%-*s\n", headBytes-1, text)
}

// DamagedError says that a part does not hold what it was written with.
type DamagedError struct {
	// URL is the part's, Problem what is wrong with it.
	URL, Problem string
	key          string
}

// Error names the part.
func (e *DamagedError) Error() string { return fmt.Sprintf("part %s is damaged: %s", e.URL, e.Problem) }

func parsePartHead(text []byte) (h partHead, err error) {
	if len(text) != headBytes || text[headBytes-1] != '\n' {
		return h, errors.New("it has no whole first line")
	}
	if err := json.Unmarshal(text, &h); err != nil || h.Version == 0 {
		return h, fmt.Errorf("its first line is not a part's: %q", excerpt(text))
	}
	if h.Version < 1 || h.Version > partWithArrays {
		return h, &OwnerError{fmt.Sprintf("a part is of version %d, this gpumux reads versions up to %d; let workers of one version end the map",
			h.Version, partWithArrays)}
	}
	if h.Items < 1 || h.Least < 0 || h.Most-h.Least+1 < h.Items || h.Bytes < 1 {
		return h, errors.New("its first line contradicts itself")
	}
	return h, nil
}

// part is a part and its head.
type part struct {
	partName
	partHead
}

// compare orders parts by where they begin, then by name.
func (p part) compare(q part) int {
	if p.Least != q.Least {
		return int(min(1, max(-1, p.Least-q.Least)))
	}
	return strings.Compare(p.String(), q.String())
}

// listParts returns the names of the parts of a folder, in no order.
func (s *Store) listParts(ctx context.Context, folder string) (all []partName, err error) {
	err = s.list(ctx, folder, func(name string, _ int64) {
		if p, ok := parsePart(name); ok {
			all = append(all, p)
		}
	})
	return all, err
}

// readHeads reads the first lines of parts side by side and returns the parts in order. It calls lost for each part that is damaged
// or gone; an error of lost ends it.
func (s *Store) readHeads(ctx context.Context, folder string, names []partName, lost func(error) error) ([]part, error) {
	parts, errs := make([]part, len(names)), make([]error, len(names))
	next := make(chan int)
	var wait sync.WaitGroup
	for range min(abreast, len(names)) {
		wait.Go(func() {
			for i := range next {
				parts[i].partName = names[i]
				parts[i].partHead, errs[i] = s.readHead(ctx, names[i].key(folder))
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	wait.Wait()
	var good []part
	for i, err := range errs {
		if err == nil {
			good = append(good, parts[i])
		} else if err := lost(err); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(good, part.compare)
	return good, nil
}

func (s *Store) readHead(ctx context.Context, key string) (partHead, error) {
	o, err := s.open(ctx, key, 0, headBytes)
	if errors.Is(err, errBeyond) {
		return partHead{}, &DamagedError{s.Locate(key), "it is empty", key}
	}
	if err != nil {
		return partHead{}, partError(err, s.Locate(key), key)
	}
	defer o.Close()
	text := make([]byte, headBytes)
	n, err := io.ReadFull(o, text)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		return partHead{}, partError(err, o.url, key)
	}
	h, err := parsePartHead(text[:n])
	return h, damagedBy(err, o.url, key)
}

// damagedBy makes a *DamagedError of an error of parsePartHead, unless another version wrote the part.
func damagedBy(err error, url, key string) error {
	var version *OwnerError
	if err == nil || errors.As(err, &version) {
		return err
	}
	return &DamagedError{url, err.Error(), key}
}

// setAside moves a damaged part out of the way, so that it stays for people to look at and its items run again.
func (s *Store) setAside(ctx context.Context, d *DamagedError) error {
	to := path.Join(path.Dir(d.key), "damaged", path.Base(d.key))
	err := s.copyObject(ctx, d.key, to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody else was first
	}
	if err != nil {
		return fmt.Errorf("set the damaged part %s aside: %w", d.URL, err)
	}
	return s.Delete(ctx, d.key)
}

// copyObject copies an object as it lies there, encrypted or not, sound or not.
func (s *Store) copyObject(ctx context.Context, key, to string) error {
	from, err := s.home.bucket.NewReader(ctx, key, nil)
	if err != nil {
		return absent("read", s.Locate(key), err)
	}
	defer from.Close()
	into, err := s.home.sink(ctx, to, creation{bytes: from.Size()})
	if err != nil {
		return err
	}
	if _, err := io.Copy(into, from); err != nil {
		into.abort()
		return err
	}
	return into.commit()
}

// partError makes a *DamagedError where the encryption of a part is broken. Other errors stay as they are.
func partError(err error, url, key string) error {
	var damaged *DamagedError
	if err != nil && !errors.As(err, &damaged) && errors.Is(err, errSealBroken) {
		return &DamagedError{url, err.Error(), key}
	}
	return err
}

// WritePart stores results, in any order, as a part of their own.
func (s *Store) WritePart(ctx context.Context, folder string, results []gpumux.Result) error {
	a, err := s.Append(folder)
	if err != nil {
		return err
	}
	for _, r := range results {
		if err := a.Add(r); err != nil {
			return err
		}
	}
	return a.Flush(ctx)
}

// Written is where an Appender stood at some moment: what lies in its parts from Number on was written later.
type Written struct {
	Writer string `json:"writer"`
	Number int    `json:"number"`
}

// Valid reports whether an Appender can have stood there.
func (w Written) Valid() bool {
	_, ok := parsePart(partName{w.Writer, w.Number}.String())
	return ok
}

// Since calls f with every result of the writer's parts from that moment on, while it reads the next parts. It sets damaged parts
// aside and calls damaged for each.
func (s *Store) Since(ctx context.Context, folder string, w Written, f func(index int64, kind gpumux.Kind), damaged func(error)) error {
	folder, err := s.Writable(folder)
	if err != nil {
		return err
	}
	if !w.Valid() {
		return fmt.Errorf("%q is no writer of parts", w.Writer)
	}
	type read struct {
		outcomes []outcome
		err      error
	}
	ahead := make([]chan read, 0, abreast)
	number := w.Number
	for {
		for len(ahead) < abreast {
			key, ready := (partName{w.Writer, number}).key(folder), make(chan read, 1)
			number++
			go func() {
				var r read
				r.err = s.eachLine(ctx, key, func(_ []byte, o outcome) error { r.outcomes = append(r.outcomes, o); return nil })
				ready <- r
			}()
			ahead = append(ahead, ready)
		}
		r := <-ahead[0]
		ahead = ahead[1:]
		var broken *DamagedError
		switch {
		case errors.Is(r.err, fs.ErrNotExist):
			return nil
		case errors.As(r.err, &broken):
			damaged(r.err)
			if err := s.setAside(ctx, broken); err != nil {
				return err
			}
			continue
		case r.err != nil:
			return r.err
		}
		for _, o := range r.outcomes {
			f(o.index, o.kind)
		}
	}
}

// eachLine calls f with every line of a part. The part as a whole is sound only if the error is nil.
func (s *Store) eachLine(ctx context.Context, key string, f func(line []byte, o outcome) error) error {
	body, err := s.open(ctx, key, 0, -1)
	if err != nil {
		return partError(err, s.Locate(key), key)
	}
	c, err := newCursor(key, 0, body, bufio.NewReaderSize(body, 64<<10))
	if err != nil {
		body.Close()
		return err
	}
	defer c.close()
	for {
		if err := c.next(); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		if err := f(c.line, c.outcome); err != nil {
			return err
		}
	}
}
