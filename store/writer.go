package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"

	"github.com/gpumux/gpumux/internal/contract"
)

// The least size of the parts of a multipart upload, and their most. S3 takes at most 10,000 parts.
const (
	leastUploadPart = 8 << 20
	mostUploadParts = 9000
)

// Writer writes one object. The object appears at Close, whole, or not at all. A Writer belongs to one goroutine.
type Writer struct {
	ctx  context.Context
	url  string
	into sink
	err  error
}

// sink takes the bytes of one object. Exactly one of commit and abort ends it.
type sink interface {
	Write(data []byte) (int, error)
	commit() error
	abort()
}

// creation says how an object is made.
type creation struct {
	// exclusive makes Close fail with fs.ErrExist when the object is there already.
	exclusive bool
	sealing   sealing
	// own is for an object with a name that no caller may write, see names.Writable.
	own bool
	// bytes is how large the object may become, as far as known.
	bytes int64
}

// Create starts an object. Nothing is visible until Close returned nil; then it survives a crash of the machine. An existing
// object is replaced at that moment. Every Writer needs Close or Abort.
func (s *Store) Create(ctx context.Context, key string) (*Writer, error) {
	return s.create(ctx, key, creation{})
}

// CreateResident is Create for a value on its way from one slot to another, whose key begins with contract.ResidentsFolder.
func (s *Store) CreateResident(ctx context.Context, key string) (*Writer, error) {
	if !strings.HasPrefix(key, contract.ResidentsFolder) {
		return s.Create(ctx, key)
	}
	return s.create(ctx, key, creation{own: true})
}

func (s *Store) create(ctx context.Context, name string, c creation) (*Writer, error) {
	key, err := s.Writable(name)
	if c.own {
		key, err = s.Key(name)
	}
	if err != nil {
		return nil, err
	}
	w := &Writer{ctx: ctx, url: s.Locate(key)}
	var seal *seal
	if s.keys != nil && c.sealing != asItLies {
		if seal, err = newSeal(s.keys); err != nil {
			return nil, w.writeError(err)
		}
	}
	if w.into, err = s.home.sink(ctx, key, c); err != nil {
		return nil, w.writeError(err)
	}
	if seal != nil {
		w.into = newSealedSink(seal, w.into)
	}
	return w, nil
}

// sink takes the bytes of an object as they are to lie in the place.
func (p *place) sink(ctx context.Context, key string, c creation) (sink, error) {
	if p.dir != "" {
		return newDiskSink(p.dir, key, c)
	}
	return newBucketSink(ctx, p, key, c), nil
}

// Write adds to the object. After an error every later Write and Close returns it.
func (w *Writer) Write(data []byte) (int, error) {
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.into.Write(data)
	if err != nil {
		w.err = w.writeError(err)
	}
	return n, w.err
}

// Close makes the object visible. When it returns an error the object is as it was before. A second Close returns fs.ErrClosed.
func (w *Writer) Close() error {
	if w.into == nil {
		return fs.ErrClosed
	}
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	if w.err != nil {
		w.Abort()
		return w.err
	}
	err := w.into.commit()
	w.into, w.err = nil, fs.ErrClosed
	if err != nil {
		return w.writeError(err)
	}
	return nil
}

// Abort gives the object up and leaves nothing behind. After Close it does nothing, so it can be deferred.
func (w *Writer) Abort() {
	if w.into == nil {
		return
	}
	w.into.abort()
	w.into = nil
	if w.err == nil {
		w.err = fs.ErrClosed
	}
}

func (w *Writer) writeError(err error) error { return fmt.Errorf("write %s: %w", w.url, err) }

// clearTime is how long an aborted upload may take to delete its parts on the server.
const clearTime = 10 * time.Second

// bucketSink hands the bytes to an upload of the blob library, which shows an object only when all of it arrived.
type bucketSink struct {
	*io.PipeWriter
	giveUp func(error)
	ignore func() bool
	cancel context.CancelFunc
	done   chan error
}

func newBucketSink(ctx context.Context, p *place, key string, c creation) sink {
	// An upload whose context ends leaves its parts on an S3 server. One whose input breaks off deletes them.
	uploading, cancel := context.WithCancel(context.WithoutCancel(ctx))
	pr, pw := io.Pipe()
	b := &bucketSink{PipeWriter: pw, cancel: cancel, done: make(chan error, 1)}
	b.giveUp = func(why error) {
		if p.scheme == s3blob.Scheme {
			time.AfterFunc(clearTime, cancel)
		} else {
			cancel()
		}
		pw.CloseWithError(why)
	}
	b.ignore = context.AfterFunc(ctx, func() { b.giveUp(ctx.Err()) })
	go func() {
		err := p.bucket.Upload(uploading, key, pr, &blob.WriterOptions{
			ContentType:    "application/octet-stream",
			IfNotExist:     c.exclusive,
			BufferSize:     int(max(leastUploadPart, c.bytes/mostUploadParts)),
			MaxConcurrency: 4,
		})
		pr.CloseWithError(cmp.Or(err, fs.ErrClosed))
		b.done <- err
	}()
	return b
}

func (b *bucketSink) commit() error {
	defer b.cancel()
	b.PipeWriter.Close()
	err := <-b.done
	b.ignore()
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return errors.Join(fs.ErrExist, err)
	}
	return err
}

func (b *bucketSink) abort() {
	defer b.cancel()
	b.ignore()
	b.giveUp(context.Canceled)
	<-b.done
}
