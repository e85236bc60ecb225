package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// content is a stretch of an object that is being read. Size and ModTime are of the whole object.
type content interface {
	io.ReadCloser
	Size() int64
	ModTime() time.Time
}

// peeked is a content whose first bytes were read already.
type peeked struct {
	content
	first []byte
	// left is how much of it belongs to the stretch, or negative.
	left int64
}

// Read is io.Reader's.
func (h *peeked) Read(data []byte) (n int, err error) {
	if h.left >= 0 {
		data = data[:min(int64(len(data)), h.left)]
	}
	switch {
	case h.left == 0:
		return 0, io.EOF
	case len(h.first) > 0:
		n = copy(data, h.first)
		h.first = h.first[n:]
	default:
		n, err = h.content.Read(data)
	}
	if h.left > 0 {
		h.left -= int64(n)
	}
	return n, err
}

// sealedHead is the beginning of an encrypted object, with its size and time, which show whether it was replaced.
type sealedHead struct {
	seal     *seal
	bytes    int64 // of the object as it lies there
	modified time.Time
}

// segments is the number of segments and the size of what they hold.
func (h *sealedHead) segments() (count, size int64, err error) {
	body := h.bytes - int64(sealHead)
	count = (body + sealSegment + sealTag - 1) / (sealSegment + sealTag)
	if size = body - count*sealTag; count < 1 || size < (count-1)*sealSegment {
		return 0, 0, errSealBroken
	}
	return count, size, nil
}

var errSealBroken = errors.New("the encrypted object is cut off or was changed")

// sealedContent decrypts a stretch.
type sealedContent struct {
	body   content
	head   *sealedHead
	size   int64
	number int64 // of the next segment
	count  int64
	skip   int   // of the next segment, bytes before the stretch
	left   int64 // plain bytes of the stretch to come
	plain  []byte
	sealed []byte
	broken func() // called once what was read does not fit the key
}

// Size is of the plain object.
func (c *sealedContent) Size() int64 { return c.size }

// ModTime is of the object.
func (c *sealedContent) ModTime() time.Time { return c.head.modified }

// Close is io.Closer's.
func (c *sealedContent) Close() error {
	if c.body == nil {
		return nil
	}
	return c.body.Close()
}

// Read is io.Reader's.
func (c *sealedContent) Read(data []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	for len(c.plain) == 0 {
		if err := c.readSegment(); err != nil {
			return 0, err
		}
	}
	n := copy(data, c.plain[:min(int64(len(c.plain)), c.left)])
	c.plain, c.left = c.plain[n:], c.left-int64(n)
	return n, nil
}

// readSegment decrypts a segment.
func (c *sealedContent) readSegment() error {
	last := c.number == c.count-1
	want := int64(sealSegment + sealTag)
	if last {
		want = c.head.bytes - int64(sealHead) - c.number*want
	}
	if int64(cap(c.sealed)) < want {
		c.sealed = make([]byte, want)
	}
	if _, err := io.ReadFull(c.body, c.sealed[:want]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	// In place: what is handed out is gone before the next one is read.
	plain, err := c.head.seal.Open(c.sealed[:0], sealNonce(c.number, last), c.sealed[:want], c.head.seal.head)
	if err != nil {
		c.broken()
		return fmt.Errorf("segment %d: %w", c.number, errSealBroken)
	}
	c.plain, c.skip = plain[c.skip:], 0
	c.number++
	return nil
}

// keptHeads is how many beginnings of encrypted objects are remembered, for stretches to come.
const keptHeads = 256

// openContent opens the rest of the stretch, and decrypts an encrypted object.
func (o *object) openContent() (content, error) {
	switch {
	case o.sealing == asItLies:
		return o.openRaw(o.from, o.length)
	case o.from == 0 && (o.length < 0 || o.length >= int64(len(sealMagic)) || o.s.keys != nil):
		return o.openStart()
	case o.s.keys == nil:
		return o.openRaw(o.from, o.length)
	}
	for range 2 { // again if the object was replaced since its head was read
		head, known, err := o.loadHead()
		if err != nil {
			return nil, err
		}
		if head == nil {
			return o.openRaw(o.from, o.length)
		}
		if c, err := o.openSegments(head, known); c != nil || err != nil {
			return c, err
		}
	}
	return nil, errors.New("it was replaced while it was read; try again")
}

var errBeyond = errors.New("it is cut off")

// openRaw opens a stretch of the object as it lies in the store.
func (o *object) openRaw(from, length int64) (content, error) {
	body, err := o.s.home.bucket.NewRangeReader(o.ctx, o.key, from, length, nil)
	var refusal interface{ HTTPStatusCode() int }
	if errors.As(err, &refusal) && refusal.HTTPStatusCode() == http.StatusRequestedRangeNotSatisfiable {
		return nil, errBeyond
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

// openStart opens an object from its first byte on, and finds out whether it is encrypted, in one request.
func (o *object) openStart() (content, error) {
	length := o.length
	if length >= 0 && o.s.keys != nil {
		length = int64(sealHead) + (length+sealSegment-1)/sealSegment*(sealSegment+sealTag)
	}
	for broken := 0; ; broken++ {
		body, err := o.openRaw(0, length)
		if err != nil {
			return nil, err
		}
		first := make([]byte, sealHead)
		n, err := io.ReadFull(body, first)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			body.Close()
			if broken < reopenings && o.ctx.Err() == nil {
				continue
			}
			return nil, err
		}
		c, err := o.startContent(first[:n], body)
		if err != nil {
			body.Close()
			return nil, err
		}
		return c, nil
	}
}

// startContent is the stretch from the first byte on. The first bytes of the body were read already.
func (o *object) startContent(first []byte, body content) (content, error) {
	head, err := o.parseSealed(first, body)
	if err != nil {
		return nil, err
	}
	if head == nil {
		return &peeked{body, first, o.length}, nil
	}
	count, size, err := head.segments()
	if err != nil {
		return nil, err
	}
	left := size
	if o.length >= 0 {
		left = min(size, o.length)
	}
	return &sealedContent{body: body, head: head, size: size, count: count, left: left, broken: func() {}}, nil
}

// parseSealed reads the beginning of an object. It returns nil for an object that is not encrypted and need not be.
func (o *object) parseSealed(first []byte, whole content) (*sealedHead, error) {
	keys := o.s.keys
	switch {
	case !bytes.HasPrefix(first, []byte(sealMagic)) && (keys == nil || o.sealing != sealedOnly):
		return nil, nil
	case len(first) < len(sealMagic):
		return nil, errSealBroken
	case !bytes.HasPrefix(first, []byte(sealMagic)):
		return nil, unsealed(o.url)
	case keys == nil:
		return nil, noKeys(o.url)
	case len(first) < sealHead:
		return nil, errSealBroken
	}
	s, err := openSeal(keys, first)
	if err != nil {
		return nil, &KeyError{URL: o.url, Err: err}
	}
	return &sealedHead{s, whole.Size(), whole.ModTime()}, nil
}

// loadHead is the beginning of the object, or nil when it is not encrypted. It says whether it was known from before.
func (o *object) loadHead() (head *sealedHead, known bool, err error) {
	o.s.mu.Lock()
	head, known = o.s.sealedHeads[o.url]
	o.s.mu.Unlock()
	if known {
		return head, true, nil
	}
	body, err := o.openRaw(0, int64(sealHead))
	if err != nil {
		return nil, false, err
	}
	defer body.Close()
	first := make([]byte, sealHead)
	n, err := io.ReadFull(body, first)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, false, err
	}
	if head, err = o.parseSealed(first[:n], body); head == nil {
		return nil, false, err
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if len(o.s.sealedHeads) >= keptHeads || o.s.sealedHeads == nil {
		o.s.sealedHeads = map[string]*sealedHead{}
	}
	o.s.sealedHeads[o.url] = head
	return head, false, nil
}

func (o *object) forgetHead() {
	o.s.mu.Lock()
	delete(o.s.sealedHeads, o.url)
	o.s.mu.Unlock()
}

// openSegments opens the segments that the stretch lies in. It returns nil if the head was known and the object may be another now.
func (o *object) openSegments(head *sealedHead, known bool) (content, error) {
	count, size, err := head.segments()
	if err != nil {
		return nil, err
	}
	left := max(0, size-o.from)
	if o.length >= 0 {
		left = min(left, o.length)
	}
	number := o.from / sealSegment
	c := &sealedContent{head: head, size: size, number: number, count: count, skip: int(o.from % sealSegment), left: left,
		broken: o.forgetHead}
	if left == 0 && known { // nothing is read that would show whether the head is still right
		o.forgetHead()
		return nil, nil
	}
	if left == 0 {
		return c, nil
	}
	from := int64(sealHead) + number*(sealSegment+sealTag)
	to := int64(sealHead) + ((o.from+left-1)/sealSegment+1)*(sealSegment+sealTag)
	if c.body, err = o.openRaw(from, min(to, head.bytes)-from); err != nil {
		return nil, err
	}
	if c.body.Size() != head.bytes || !c.body.ModTime().Equal(head.modified) {
		c.body.Close()
		o.forgetHead()
		return nil, nil
	}
	return c, nil
}
