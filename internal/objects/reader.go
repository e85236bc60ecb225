package objects

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// reopenings is how often in a row a reader whose connection broke asks for the rest.
const reopenings = 3

// DamageError says that an object is not what was written.
type DamageError struct{ Problem string }

// Error is the problem.
func (e *DamageError) Error() string { return e.Problem }

// Damaged is a *DamageError.
func Damaged(format string, args ...any) error { return &DamageError{fmt.Sprintf(format, args...)} }

var (
	errCutOff   = Damaged("it is cut off")
	errBroken   = Damaged("the encrypted object is cut off or was changed")
	errReplaced = errors.New("it was replaced while it was read; try again")
)

// stretch is length bytes of an object from offset on, or all the rest.
type stretch struct{ offset, length int64 }

// Reader reads a stretch of one object, decrypted.
type Reader struct {
	b    *Bucket
	url  string
	from io.Reader
	raw  *raw
	size int64
	// foreign is closed with the Reader, if not nil.
	foreign *At
}

func newReader(ctx context.Context, b *Bucket, name string, s stretch, plain bool) (*Reader, error) {
	key, err := b.Key(name)
	if err != nil {
		return nil, err
	}
	r := &Reader{b: b, url: b.Locate(key)}
	if s.offset < 0 {
		return nil, fmt.Errorf("read %s: offset %d is negative", r.url, s.offset)
	}
	if b.keys == nil {
		err = r.open(ctx, key, s)
	} else {
		err = r.openSealed(ctx, key, s, plain)
	}
	if err != nil {
		r.Close()
		return nil, absent("read", r.url, err)
	}
	return r, nil
}

// open opens an object that is not encrypted.
func (r *Reader) open(ctx context.Context, key string, s stretch) (err error) {
	if r.raw, err = openRaw(ctx, r.b, key, s); err != nil {
		return err
	}
	r.from, r.size = r.raw, r.raw.body.Size()
	if s.offset == 0 && (s.length < 0 || s.length >= int64(len(sealMagic))) {
		start := bufio.NewReaderSize(r.raw, 16)
		if magic, _ := start.Peek(len(sealMagic)); string(magic) == sealMagic {
			return &KeyError{r.url, errNoKeys}
		}
		r.from = start
	}
	return nil
}

// openSealed opens an object that may or must be encrypted. From its beginning on that is
// one request, else two.
func (r *Reader) openSealed(ctx context.Context, key string, s stretch, plain bool) (err error) {
	first := stretch{0, headSize}
	if s.offset == 0 {
		first.length = segmentsEnd(s.length)
	}
	if r.raw, err = openRaw(ctx, r.b, key, first); err != nil {
		return err
	}
	start := make([]byte, min(headSize, r.raw.body.Size()))
	if _, err := io.ReadFull(r.raw, start); err != nil {
		return err
	}
	head, err := parseHead(r.b.keys, start, r.raw.body)
	switch {
	case err == errPlain && plain:
		r.raw.Close()
		return r.open(ctx, key, s)
	case err == errBroken || err == errPlain && len(start) < len(sealMagic):
		return errBroken
	case err != nil:
		return &KeyError{r.url, err}
	case s.offset == 0:
		r.decrypt(head, s)
		return nil
	}
	r.raw.Close()
	low, high := segmentAt(min(s.offset/sealSegment, head.count-1)), head.bytes
	if s.length >= 0 {
		high = max(low, min(high, segmentsEnd(s.offset+s.length)))
	}
	if r.raw, err = openRaw(ctx, r.b, key, stretch{low, high - low}); err != nil {
		return err
	}
	if !head.is(r.raw.body) {
		return errReplaced
	}
	r.decrypt(head, s)
	return nil
}

// decrypt reads the stretch out of the segments that it lies in.
func (r *Reader) decrypt(head *sealedHead, s stretch) {
	left := max(0, head.size-s.offset)
	if s.length >= 0 {
		left = min(left, s.length)
	}
	r.size = head.size
	r.from = &unsealer{from: r.raw, head: head, number: s.offset / sealSegment, skip: int(s.offset % sealSegment), left: left}
}

// Size is the number of bytes of the whole object.
func (r *Reader) Size() int64 { return r.size }

// Changed is when the object was last written.
func (r *Reader) Changed() time.Time { return r.raw.body.ModTime() }

// URL is the object's.
func (r *Reader) URL() string { return r.url }

// Read is io.Reader's.
func (r *Reader) Read(data []byte) (int, error) {
	n, err := r.from.Read(data)
	if err != nil && err != io.EOF {
		err = absent("read", r.url, err)
	}
	return n, err
}

// Close is io.Closer's.
func (r *Reader) Close() error {
	var err error
	if r.raw != nil {
		err = r.raw.Close()
	}
	if r.foreign != nil {
		err = errors.Join(err, r.foreign.Close())
	}
	return err
}

// absent makes an fs.ErrNotExist of the blob library's error.
func absent(verb, url string, err error) error {
	if errors.As(err, new(*KeyError)) {
		return err
	}
	if gcerrors.Code(err) == gcerrors.NotFound {
		return fmt.Errorf("%s %s: %w", verb, url, fs.ErrNotExist)
	}
	return fmt.Errorf("%s %s: %w", verb, url, err)
}

// raw reads a stretch of an object as it lies in the bucket. When the connection breaks,
// it reads on from there.
type raw struct {
	ctx    context.Context
	b      *Bucket
	key    string
	left   stretch
	body   *blob.Reader
	broken int
}

func openRaw(ctx context.Context, b *Bucket, key string, s stretch) (*raw, error) {
	r := &raw{ctx: ctx, b: b, key: key, left: s}
	var err error
	r.body, err = b.blobs.NewRangeReader(ctx, key, s.offset, s.length, nil)
	var refusal interface{ HTTPStatusCode() int }
	if errors.As(err, &refusal) && refusal.HTTPStatusCode() == http.StatusRequestedRangeNotSatisfiable {
		return nil, errCutOff
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Read is io.Reader's.
func (r *raw) Read(data []byte) (int, error) {
	for {
		n, err := r.body.Read(data)
		r.left.offset += int64(n)
		if r.left.length >= 0 {
			r.left.length -= int64(n)
		}
		if n > 0 {
			r.broken = 0
			return n, nil
		}
		if err == nil || err == io.EOF {
			return n, err
		}
		if r.broken++; r.broken > reopenings || r.ctx.Err() != nil {
			return n, fmt.Errorf("at byte %d: %w", r.left.offset, err)
		}
		rest, err := openRaw(r.ctx, r.b, r.key, r.left)
		if err != nil {
			return n, err
		}
		r.body.Close()
		before := r.body
		r.body = rest.body
		if rest.body.Size() != before.Size() || !rest.body.ModTime().Equal(before.ModTime()) {
			return n, errReplaced
		}
	}
}

// Close is io.Closer's.
func (r *raw) Close() error { return r.body.Close() }

// At reads an object by position. Each read is a request to a server. When the object was
// replaced since it was opened, a read is an error.
type At struct {
	ctx     context.Context
	b       *Bucket
	name    string
	size    int64
	changed time.Time
	// foreign says that the bucket was opened for this object alone.
	foreign bool
}

// OpenAt opens an object to be read by position. It need not be encrypted.
func OpenAt(ctx context.Context, b *Bucket, name string) (*At, error) {
	r, err := b.ReadAny(ctx, name, 0, int64(len(sealMagic)))
	if err != nil {
		return nil, err
	}
	return &At{ctx: ctx, b: b, name: name, size: r.Size(), changed: r.Changed()}, r.Close()
}

// OpenURL opens an object anywhere on a server: s3://bucket/items.jsonl?region=eu-west-1,
// with the parameters and credentials of Open. It is for names from a person at this
// machine; those in a map's input go through a Bucket.
func OpenURL(ctx context.Context, raw string) (*At, error) {
	b, _, name, err := folderOf(ctx, raw)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, errors.Join(fmt.Errorf("%s names no file; write s3://bucket/folder/items.jsonl", raw), b.Close())
	}
	at, err := OpenAt(ctx, b, name)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	at.foreign = true
	return at, nil
}

// folderOf opens the folder of an object anywhere on a server.
func folderOf(ctx context.Context, raw string) (b *Bucket, folder *url.URL, name string, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, nil, "", fmt.Errorf("%q is not a URL: %w", raw, err)
	}
	u.Path, name = path.Split(u.Path)
	u.RawPath, b = "", &Bucket{raw: raw}
	if err := b.connect(ctx, u.String()); err != nil {
		return nil, nil, "", fmt.Errorf("%w (open %s)", err, raw)
	}
	return b, u, name, nil
}

// FilesOf lists the objects of a folder and of those below it, anywhere on a server. It
// returns their URLs, and their keys in the folder, in the order of the keys.
func FilesOf(ctx context.Context, folder string) (urls, keys []string, err error) {
	b, u, _, err := folderOf(ctx, folder)
	if err != nil {
		return nil, nil, err
	}
	defer b.Close()
	for objects := b.blobs.List(nil); ; {
		o, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			return urls, keys, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("list %s: %w", folder, cause(err))
		}
		if !strings.HasSuffix(o.Key, "/") { // which says to consoles that there is a folder
			urls, keys = append(urls, u.JoinPath(o.Key).String()), append(keys, o.Key)
		}
	}
}

// Size is the number of bytes of the object.
func (a *At) Size() int64 { return a.size }

// Reader reads the object from its beginning on, and closes it at the end.
func (a *At) Reader() (*Reader, error) {
	r, err := a.b.ReadAny(a.ctx, a.name, 0, -1)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	r.foreign = a
	return r, nil
}

// ReadAt is io.ReaderAt's.
func (a *At) ReadAt(data []byte, offset int64) (int, error) {
	want := min(int64(len(data)), a.size-offset)
	if want <= 0 {
		return 0, io.EOF
	}
	r, err := a.b.ReadAny(a.ctx, a.name, offset, want)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if r.Size() != a.size || !r.Changed().Equal(a.changed) {
		return 0, fmt.Errorf("read %s: %w", r.URL(), errReplaced)
	}
	n, err := io.ReadFull(r, data[:want])
	if err == nil && n < len(data) {
		err = io.EOF
	}
	return n, err
}

// Close is io.Closer's.
func (a *At) Close() error {
	if a.foreign {
		return a.b.Close()
	}
	return nil
}
