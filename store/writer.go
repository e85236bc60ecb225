package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// Parts of a multipart upload, in bytes. S3 takes at most 10,000 of them.
const (
	smallPart = 8 << 20
	mostParts = 9000
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
	// bytes is how large the object may become, as far as known.
	bytes int64
}

// Create starts an object. Nothing is visible until Close returned nil; then it survives a crash of the machine. An existing
// object is replaced at that moment. Every Writer needs Close or Abort.
func (s *Store) Create(ctx context.Context, key string) (*Writer, error) {
	return s.create(ctx, key, creation{})
}

func (s *Store) create(ctx context.Context, name string, c creation) (*Writer, error) {
	key, err := s.Key(name)
	if err != nil {
		return nil, err
	}
	w := &Writer{ctx: ctx, url: s.Locate(key)}
	if s.home.dir != "" {
		w.into, err = newDiskSink(s.home.dir, key, c)
	} else {
		w.into, err = newBucketSink(ctx, s.home.bucket, key, c)
	}
	if err != nil {
		return nil, w.failed(err)
	}
	return w, nil
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
		w.err = w.failed(err)
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
		return w.failed(err)
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

func (w *Writer) failed(err error) error { return fmt.Errorf("write %s: %w", w.url, err) }

// bucketSink writes through the blob library, which shows an object only when all of it arrived.
type bucketSink struct {
	*blob.Writer
	cancel context.CancelFunc
}

func newBucketSink(ctx context.Context, bucket *blob.Bucket, key string, c creation) (sink, error) {
	ctx, cancel := context.WithCancel(ctx)
	w, err := bucket.NewWriter(ctx, key, &blob.WriterOptions{
		ContentType:    "application/octet-stream",
		IfNotExist:     c.exclusive,
		BufferSize:     int(max(smallPart, c.bytes/mostParts)),
		MaxConcurrency: 4,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return &bucketSink{w, cancel}, nil
}

func (b *bucketSink) commit() error {
	defer b.cancel()
	err := b.Writer.Close()
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return errors.Join(fs.ErrExist, err)
	}
	return err
}

func (b *bucketSink) abort() {
	b.cancel()
	b.Writer.Close()
}
