package store

import (
	"bufio"
	"container/heap"
	"context"
	"fmt"
	"io"
)

// cursor walks over the lines of one part.
type cursor struct {
	part
	// order is the part's place in the order of names.
	order int
	body  *object
	lines lineReader
	count int
	line  []byte
	outcome
}

// newCursor reads through a buffer of its own unless it is given one to use again.
func newCursor(p part, order int, body *object, buffer *bufio.Reader) *cursor {
	if buffer == nil {
		buffer = bufio.NewReaderSize(body, 128<<10)
	} else {
		buffer.Reset(body)
	}
	return &cursor{part: p, order: order, body: body, lines: lineReader{r: buffer, left: body.body.Size()}, outcome: outcome{index: -1}}
}

// next moves to the next line; the line before is gone. The end is io.EOF.
func (c *cursor) next() (err error) {
	before := c.index
	if c.line, err = c.lines.read(); err == io.EOF {
		return err
	}
	c.count++
	if err == nil {
		c.outcome, err = readOutcome(c.line)
	}
	if err == nil && (c.index <= before || c.index < c.start || c.index >= c.end) {
		err = fmt.Errorf("index %d is out of order or outside the part", c.index)
	}
	if err != nil {
		return fmt.Errorf("part %s, line %d: %w", c.body.url, c.count, err)
	}
	return nil
}

func (c *cursor) close() { c.body.Close() }

// walker goes over the lines of many parts in order of index. Of several lines with one index it gives that of the part whose
// name comes first. It opens a part when its turn comes and closes it at its end.
type walker struct {
	ctx    context.Context
	s      *Store
	folder string
	parts  []part
	// opened counts the parts taken from ahead, asked those that were asked for.
	opened, asked int
	ahead         []chan opening
	open          cursors
	spare         []*bufio.Reader
	last          int64
	moved         bool
	// left, if not nil, is told of each part that was read to its end.
	left func(part)
}

type opening struct {
	body *object
	err  error
}

func (s *Store) walk(ctx context.Context, folder string, parts []part) *walker {
	return &walker{ctx: ctx, s: s, folder: folder, parts: parts, last: -1}
}

// step returns the cursor that stands at the next index; it is valid until the next call. The end is io.EOF.
func (w *walker) step() (*cursor, error) {
	if w.moved {
		if err := w.advance(); err != nil {
			return nil, err
		}
	}
	for {
		for w.opened < len(w.parts) && (len(w.open) == 0 || w.parts[w.opened].start <= w.open[0].index) {
			if err := w.enter(); err != nil {
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
		w.leave(c)
		return nil
	case err != nil:
		return err
	}
	if len(w.open) > 1 {
		heap.Fix(&w.open, 0)
	}
	return nil
}

// enter opens the next part.
func (w *walker) enter() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	p, order := w.parts[w.opened], w.opened
	body, err := w.take()
	if err != nil {
		return err
	}
	var buffer *bufio.Reader
	if n := len(w.spare); n > 0 {
		buffer, w.spare = w.spare[n-1], w.spare[:n-1]
	}
	c := newCursor(p, order, body, buffer)
	switch err := c.next(); {
	case err == io.EOF:
		w.leave(c)
	case err != nil:
		c.close()
		return err
	default:
		heap.Push(&w.open, c)
	}
	return nil
}

// take returns the next part's reader. Off disk, the parts after it are asked for meanwhile.
func (w *walker) take() (*object, error) {
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

func (w *walker) leave(c *cursor) {
	c.close()
	w.spare = append(w.spare, c.lines.r)
	if w.left != nil {
		w.left(c.part)
	}
}

// close closes what is open and waits for what was asked for.
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
