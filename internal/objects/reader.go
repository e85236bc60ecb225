package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
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

func (e *DamageError) Error() string { return e.Problem }

func Damaged(format string, args ...any) error { return &DamageError{fmt.Sprintf(format, args...)} }

var (
	errCutOff   = Damaged("it is cut off")
	errReplaced = errors.New("it was replaced while it was read; try again")
)

// Reader reads a stretch of one object: length bytes from offset on, or all the rest.
// When the connection breaks, it reads on from there.
type Reader struct {
	ctx            context.Context
	b              *Bucket
	key            string
	offset, length int64
	body           *blob.Reader
	broken         int
	// foreign is closed with the Reader, if not nil.
	foreign *At
}

// open asks for what is left of the stretch.
func (r *Reader) open() (*blob.Reader, error) {
	body, err := r.b.blobs.NewRangeReader(r.ctx, r.key, r.offset, r.length, nil)
	var refusal interface{ HTTPStatusCode() int }
	if errors.As(err, &refusal) && refusal.HTTPStatusCode() == http.StatusRequestedRangeNotSatisfiable {
		return nil, errCutOff
	}
	return body, err
}

func (r *Reader) Size() int64 { return r.body.Size() }

// Changed is when the object was last written.
func (r *Reader) Changed() time.Time { return r.body.ModTime() }

func (r *Reader) URL() string { return r.b.Locate(r.key) }

func (r *Reader) Read(data []byte) (int, error) {
	for {
		n, err := r.body.Read(data)
		r.offset += int64(n)
		if r.length >= 0 {
			r.length -= int64(n)
		}
		if n > 0 {
			r.broken = 0
			return n, nil
		}
		if err == nil || err == io.EOF {
			return n, err
		}
		if r.broken++; r.broken > reopenings || r.ctx.Err() != nil {
			return n, fmt.Errorf("read %s: at byte %d: %w", r.URL(), r.offset, err)
		}
		if err := r.reopen(); err != nil {
			return n, absent("read", r.URL(), err)
		}
	}
}

func (r *Reader) reopen() error {
	rest, err := r.open()
	if err != nil {
		return err
	}
	before := r.body
	before.Close()
	r.body = rest
	if rest.Size() != before.Size() || !rest.ModTime().Equal(before.ModTime()) {
		return errReplaced
	}
	return nil
}

func (r *Reader) Close() error {
	err := r.body.Close()
	if r.foreign != nil {
		err = errors.Join(err, r.foreign.Close())
	}
	return err
}

// absent makes an fs.ErrNotExist of the blob library's error.
func absent(verb, url string, err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		err = fs.ErrNotExist
	}
	return fmt.Errorf("%s %s: %w", verb, url, err)
}

// cause returns the root of an S3 error, without the library's account of the call.
func cause(err error) error {
	if network, ok := errors.AsType[*net.OpError](err); ok {
		return network
	}
	for {
		outer, wraps := errors.AsType[interface {
			error
			Unwrap() error
		}](err)
		if !wraps || outer.Unwrap() == nil {
			return err
		}
		err = outer.Unwrap()
	}
}

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

// OpenAt opens an object to be read by position.
func OpenAt(ctx context.Context, b *Bucket, name string) (*At, error) {
	r, err := b.Read(ctx, name, 0, 0)
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

func (a *At) Size() int64 { return a.size }

// Reader reads the object from its beginning on, and closes it at the end.
func (a *At) Reader() (*Reader, error) {
	r, err := a.b.Read(a.ctx, a.name, 0, -1)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	r.foreign = a
	return r, nil
}

func (a *At) ReadAt(data []byte, offset int64) (int, error) {
	want := min(int64(len(data)), a.size-offset)
	if want <= 0 {
		return 0, io.EOF
	}
	r, err := a.b.Read(a.ctx, a.name, offset, want)
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

func (a *At) Close() error {
	if a.foreign {
		return a.b.Close()
	}
	return nil
}
