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

// peeked is a stretch that is not encrypted, of whose object the first bytes were read
// already.
type peeked struct {
	content
	rest io.Reader
}

// Read is io.Reader's.
func (p *peeked) Read(data []byte) (int, error) { return p.rest.Read(data) }

// sealedHead is the beginning of an encrypted object. Its size and time show whether the
// object was replaced.
type sealedHead struct {
	*seal
	bytes    int64 // of the object as it lies there
	modified time.Time
	count    int64 // of segments
	size     int64 // of what they hold
}

var errSealBroken = errors.New("the encrypted object is cut off or was changed")

// sealedContent decrypts a stretch.
type sealedContent struct {
	content // from the next segment on
	head    *sealedHead
	number  int64 // of the next segment
	skip    int   // bytes of the next segment before the stretch
	left    int64 // plain bytes of the stretch to come
	plain   []byte
	sealed  []byte
	broken  func() // called once what was read does not fit the key
}

// Size is of the plain object.
func (c *sealedContent) Size() int64 { return c.head.size }

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
	want := min(sealedSegment, c.head.bytes-segmentAt(c.number))
	if int64(cap(c.sealed)) < want {
		c.sealed = make([]byte, want)
	}
	if _, err := io.ReadFull(c.content, c.sealed[:want]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	// In place: what is handed out is gone before the next one is read.
	nonce := sealNonce(c.number, c.number == c.head.count-1)
	plain, err := c.head.Open(c.sealed[:0], nonce, c.sealed[:want], c.head.head)
	if err != nil {
		c.broken()
		return fmt.Errorf("segment %d: %w", c.number, errSealBroken)
	}
	c.plain, c.skip = plain[c.skip:], 0
	c.number++
	return nil
}

// segmentAt is where a segment begins in the object.
func segmentAt(number int64) int64 { return int64(sealHead) + number*sealedSegment }

// segmentsEnd is where the segments of the plain bytes up to end are over.
func segmentsEnd(end int64) int64 { return segmentAt((end + sealSegment - 1) / sealSegment) }

// keptHeads is how many beginnings of encrypted objects are remembered, for stretches to
// come.
const keptHeads = 256

// openContent opens the rest of the stretch, and decrypts an encrypted object.
func (o *object) openContent() (content, error) {
	seen := o.from == 0 && (o.length < 0 || o.length >= int64(len(sealMagic)))
	if o.sealing == asItLies || o.s.keys == nil && !seen {
		return o.openRaw(o.from, o.length)
	}
	if o.from == 0 {
		return o.openStart()
	}
	o.s.mu.Lock()
	head := o.s.sealedHeads[o.url]
	o.s.mu.Unlock()
	if head != nil {
		if c, err := o.openSegments(head); c != nil || err != nil {
			return c, err
		}
	}
	first, body, err := o.openHead(int64(sealHead))
	if err != nil {
		return nil, err
	}
	body.Close()
	head, err = o.parseSealed(first, body)
	if err != nil {
		return nil, err
	}
	if head == nil {
		return o.openRaw(o.from, o.length)
	}
	o.keepHead(head)
	c, err := o.openSegments(head)
	if c == nil && err == nil {
		err = errors.New("it was replaced while it was read; try again")
	}
	return c, err
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

// openStart opens an object from its first byte on, and finds out whether it is
// encrypted, in one request.
func (o *object) openStart() (content, error) {
	length := o.length
	if length >= 0 && o.s.keys != nil {
		length = segmentsEnd(length)
	}
	first, body, err := o.openHead(length)
	if err != nil {
		return nil, err
	}
	head, err := o.parseSealed(first, body)
	if err != nil {
		body.Close()
		return nil, err
	}
	if head != nil {
		return o.decrypt(head, body), nil
	}
	plain := io.MultiReader(bytes.NewReader(first), body)
	if o.length >= 0 {
		plain = io.LimitReader(plain, o.length)
	}
	return &peeked{body, plain}, nil
}

// openHead opens an object and reads what may be the head of an encrypted one.
func (o *object) openHead(length int64) (first []byte, body content, err error) {
	for broken := 0; ; broken++ {
		if body, err = o.openRaw(0, length); err != nil {
			return nil, nil, err
		}
		want := min(int64(sealHead), body.Size())
		if length >= 0 {
			want = min(want, length)
		}
		first = make([]byte, want)
		if _, err = io.ReadFull(body, first); err == nil {
			return first, body, nil
		}
		body.Close()
		if broken == reopenings || o.ctx.Err() != nil {
			return nil, nil, err
		}
	}
}

// parseSealed reads the beginning of an object. It returns nil for an object that is not
// encrypted and need not be.
func (o *object) parseSealed(first []byte, whole content) (*sealedHead, error) {
	keys := o.s.keys
	marked := bytes.HasPrefix(first, []byte(sealMagic))
	switch {
	case !marked && (keys == nil || o.sealing != sealedOnly):
		return nil, nil
	case !marked && len(first) >= len(sealMagic):
		return nil, &KeyError{o.url, errPlain}
	case marked && keys == nil:
		return nil, &KeyError{o.url, errNoKeys}
	case len(first) < sealHead:
		return nil, errSealBroken
	}
	s, err := openSeal(keys, first)
	if err != nil {
		return nil, &KeyError{o.url, err}
	}
	body := whole.Size() - int64(sealHead)
	count := (body + sealedSegment - 1) / sealedSegment
	size := body - count*sealTag
	if count < 1 || size < (count-1)*sealSegment {
		return nil, errSealBroken
	}
	return &sealedHead{s, whole.Size(), whole.ModTime(), count, size}, nil
}

func (o *object) keepHead(head *sealedHead) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if len(o.s.sealedHeads) >= keptHeads || o.s.sealedHeads == nil {
		o.s.sealedHeads = map[string]*sealedHead{}
	}
	o.s.sealedHeads[o.url] = head
}

func (o *object) forgetHead() {
	o.s.mu.Lock()
	delete(o.s.sealedHeads, o.url)
	o.s.mu.Unlock()
}

// openSegments opens the segments that the stretch lies in. It returns nil if the object
// is another one than that of the head.
func (o *object) openSegments(head *sealedHead) (content, error) {
	from, to := segmentAt(min(o.from/sealSegment, head.count-1)), head.bytes
	if o.length >= 0 {
		to = max(from, min(to, segmentsEnd(o.from+o.length)))
	}
	body, err := o.openRaw(from, to-from)
	if err != nil {
		return nil, err
	}
	if body.Size() != head.bytes || !body.ModTime().Equal(head.modified) {
		body.Close()
		o.forgetHead()
		return nil, nil
	}
	return o.decrypt(head, body), nil
}

// decrypt makes the stretch of the segments that it lies in.
func (o *object) decrypt(head *sealedHead, segments content) content {
	left := max(0, head.size-o.from)
	if o.length >= 0 {
		left = min(left, o.length)
	}
	return &sealedContent{content: segments, head: head, number: o.from / sealSegment, skip: int(o.from % sealSegment), left: left,
		broken: o.forgetHead}
}
