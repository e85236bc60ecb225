package store

import (
	"bufio"
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// cursor walks over the lines of one part.
type cursor struct {
	partHead
	// key is the part's, order its place among the parts.
	key   string
	order int
	body  *object
	lines lineReader
	items int64
	bytes int64
	sum   uint32
	line  []byte
	outcome
}

// newCursor reads through the buffer, which belongs to the cursor from then on.
func newCursor(key string, order int, body *object, buffer *bufio.Reader) (*cursor, error) {
	buffer.Reset(body)
	c := &cursor{key: key, order: order, body: body, lines: lineReader{r: buffer, left: body.body.Size()}, outcome: outcome{index: -1}}
	first := make([]byte, headBytes)
	n, err := io.ReadFull(buffer, first)
	if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, partError(err, body.url, key)
	}
	if c.partHead, err = parsePartHead(first[:n]); err != nil {
		return nil, damagedBy(err, body.url, key)
	}
	return c, nil
}

func (c *cursor) damaged(problem string) error { return &DamagedError{c.body.url, problem, c.key} }

// next moves to the next line. The line before is gone then. The error is io.EOF at the end of a part that is sound as a whole.
func (c *cursor) next() (err error) {
	before := c.index
	c.line, err = c.lines.read()
	switch {
	case err == io.EOF:
		if sum := fmt.Sprintf("%08x", c.sum); c.items != c.Items || c.bytes != c.Bytes || sum != c.Sum {
			return c.damaged(fmt.Sprintf("it has %d results in %d bytes with checksum %s, and was written with %d in %d with %s", c.items,
				c.bytes, sum, c.Items, c.Bytes, c.Sum))
		}
		return io.EOF
	case errors.Is(err, errLongLine):
		return c.damaged(err.Error())
	case err != nil:
		return partError(err, c.body.url, c.key)
	}
	c.items++
	c.bytes += int64(len(c.line))
	c.sum = crc32.Update(c.sum, castagnoli, c.line)
	if c.outcome, err = parseOutcome(c.line); err != nil {
		return c.damaged(fmt.Sprintf("line %d: %s", c.items+1, err))
	}
	if c.index <= before || c.index < c.Least || c.index > c.Most {
		return c.damaged(fmt.Sprintf("line %d: item %d is out of order or outside the part", c.items+1, c.index))
	}
	return nil
}

// verify reads what is left of the part into memory and checks it there.
func (c *cursor) verify() error {
	text, err := io.ReadAll(c.lines.r)
	if err != nil {
		return partError(err, c.body.url, c.key)
	}
	c.lines = lineReader{r: bufio.NewReader(bytes.NewReader(text)), left: c.Bytes}
	check := *c
	for err == nil {
		err = check.next()
	}
	if err != io.EOF {
		return err
	}
	c.lines = lineReader{r: bufio.NewReader(bytes.NewReader(text)), left: c.Bytes}
	return nil
}

func (c *cursor) close() { c.body.Close() }

// walker goes over the lines of many parts in order of index. If several lines have one index, it gives that of the first part. It
// opens a part when its turn comes and closes it at its end.
type walker struct {
	ctx    context.Context
	s      *Store
	folder string
	parts  []part
	// opened counts the parts that were opened, asked those that were asked for. The rest of asked is in ahead.
	opened, asked int
	ahead         []chan opening
	open          cursors
	spare         []*bufio.Reader
	last          int64
	moved         bool
	// verify checks each part as a whole, in memory, before its first line, and skips a part that is damaged or gone.
	verify bool
	// closed, if not nil, is called with each part that was read to its end.
	closed func(*cursor)
}

type opening struct {
	body *object
	err  error
}

func (s *Store) walk(ctx context.Context, folder string, parts []part) *walker {
	return &walker{ctx: ctx, s: s, folder: folder, parts: parts, last: -1}
}

// step returns the cursor at the next index. It is valid until the next call. The end is io.EOF.
func (w *walker) step() (*cursor, error) {
	if w.moved {
		if err := w.advance(); err != nil {
			return nil, err
		}
	}
	for {
		for w.opened < len(w.parts) && (len(w.open) == 0 || w.parts[w.opened].Least <= w.open[0].index) {
			if err := w.openNext(); err != nil {
				return nil, err
			}
		}
		if len(w.open) == 0 {
			return nil, io.EOF
		}
		if c := w.open[0]; c.index > w.last {
			w.last, w.moved = c.index, true
			return c, nil
		}
		if err := w.advance(); err != nil {
			return nil, err
		}
	}
}

// advance moves the first cursor on.
func (w *walker) advance() error {
	w.moved = false
	c := w.open[0]
	switch err := c.next(); {
	case err == io.EOF:
		heap.Pop(&w.open)
		w.closePart(c)
		return nil
	case err != nil:
		return err
	}
	if len(w.open) > 1 {
		heap.Fix(&w.open, 0)
	}
	return nil
}

// openNext opens the next part.
func (w *walker) openNext() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	p, order := w.parts[w.opened], w.opened
	body, err := w.nextObject()
	if err != nil {
		return w.skip(partError(err, w.s.Locate(p.key(w.folder)), p.key(w.folder)))
	}
	var buffer *bufio.Reader
	if n := len(w.spare); n > 0 {
		buffer, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		buffer = bufio.NewReaderSize(body, 128<<10)
	}
	c, err := newCursor(p.key(w.folder), order, body, buffer)
	if err == nil && w.verify {
		err = c.verify()
	}
	if err != nil {
		body.Close()
		return w.skip(err)
	}
	switch err := c.next(); {
	case err == io.EOF:
		w.closePart(c)
	case err != nil:
		c.close()
		return err
	default:
		heap.Push(&w.open, c)
	}
	return nil
}

// skip returns nil if the walk goes on without the part.
func (w *walker) skip(err error) error {
	if w.verify {
		return skipLost(err)
	}
	return err
}

// nextObject returns the next part's reader. From a server it reads the parts after it ahead.
func (w *walker) nextObject() (*object, error) {
	if w.s.home.dir != "" {
		w.opened++
		return w.s.open(w.ctx, w.parts[w.opened-1].key(w.folder), 0, -1)
	}
	for len(w.ahead) < abreast && w.asked < len(w.parts) {
		key, ready := w.parts[w.asked].key(w.folder), make(chan opening, 1)
		go func() {
			body, err := w.s.open(w.ctx, key, 0, -1)
			ready <- opening{body, err}
		}()
		w.ahead = append(w.ahead, ready)
		w.asked++
	}
	first := <-w.ahead[0]
	w.ahead = w.ahead[1:]
	w.opened++
	return first.body, first.err
}

func (w *walker) closePart(c *cursor) {
	c.close()
	w.spare = append(w.spare, c.lines.r)
	if w.closed != nil {
		w.closed(c)
	}
}

// close closes all open parts and waits for those that were asked for.
func (w *walker) close() {
	for _, c := range w.open {
		c.close()
	}
	for _, ready := range w.ahead {
		if o := <-ready; o.err == nil {
			o.body.Close()
		}
	}
}

// cursors are a heap by index, then by order.
type cursors []*cursor

func (h cursors) Len() int { return len(h) }
func (h cursors) Less(i, j int) bool {
	return h[i].index < h[j].index || h[i].index == h[j].index && h[i].order < h[j].order
}
func (h cursors) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is heap.Interface's.
func (h *cursors) Push(c any) { *h = append(*h, c.(*cursor)) }

// Pop is heap.Interface's.
func (h *cursors) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}
