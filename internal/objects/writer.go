package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// The parts of a multipart upload. S3 takes at most 10,000.
const (
	minUploadPart  = 8 << 20
	maxUploadParts = 9000
)

// Writer writes one object, which appears at Close, whole, or not. One goroutine owns it.
type Writer struct {
	ctx  context.Context
	b    *Bucket
	key  string
	into sink
	err  error
}

// sink takes the bytes of one object. Exactly one of commit and abort ends it.
type sink interface {
	Write(data []byte) (int, error)
	commit() error
	abort()
}

type Creation struct {
	// Reserved is for a name that no caller may write, see names.Writable.
	Reserved bool
	// Bytes is how large the object may become, as far as known.
	Bytes int64
	// Volatile is for what can be made again: a crash of the machine may leave a part of it,
	// or nothing.
	Volatile bool
	// exclusive makes Close fail with fs.ErrExist when the object is there already.
	exclusive bool
}

func (b *Bucket) newSink(ctx context.Context, key string, c Creation) (sink, error) {
	if b.dir != "" {
		f, err := newTemporary(b.dir)
		if err != nil {
			return nil, err
		}
		return &diskSink{f, b.onDisk(key), c}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	w, err := b.blobs.NewWriter(ctx, key, &blob.WriterOptions{
		ContentType:    "application/octet-stream",
		IfNotExist:     c.exclusive,
		BufferSize:     int(max(minUploadPart, c.Bytes/maxUploadParts)),
		MaxConcurrency: 4,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return &blobSink{w, cancel}, nil
}

// Write adds to the object. After an error every later Write and Close returns it.
func (w *Writer) Write(data []byte) (int, error) {
	w.err = cmp.Or(w.err, w.ctx.Err())
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.into.Write(data)
	if err != nil {
		w.err = w.failed(err)
	}
	return n, w.err
}

// Close makes the object visible. When it returns an error the object is as it was
// before. A second Close returns fs.ErrClosed.
func (w *Writer) Close() error {
	if w.into == nil {
		return fs.ErrClosed
	}
	w.err = cmp.Or(w.err, w.ctx.Err())
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

// Abort gives the object up. After Close it does nothing, so it can be deferred.
func (w *Writer) Abort() {
	if w.into == nil {
		return
	}
	w.into.abort()
	w.into = nil
	w.err = cmp.Or(w.err, fs.ErrClosed)
}

func (w *Writer) failed(err error) error { return fmt.Errorf("write %s: %w", w.b.Locate(w.key), err) }

// blobSink is an upload, which shows an object only when all of it arrived.
type blobSink struct {
	*blob.Writer
	cancel context.CancelFunc
}

func (b *blobSink) commit() error {
	defer b.cancel()
	err := b.Writer.Close()
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return errors.Join(fs.ErrExist, err)
	}
	return err
}

func (b *blobSink) abort() {
	b.cancel()
	b.Writer.Close()
}
