package store

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Positioned is an object that is read by position.
type Positioned interface {
	io.ReaderAt
	io.Closer
}

// OpenSource opens a source in the store to be read by position, and returns its size. Each read is a request, where the store is on a
// server. The name is as for Read. When the source was replaced since it was opened, a read is an error.
func (s *Store) OpenSource(ctx context.Context, name string) (Positioned, int64, error) {
	at, err := s.openAt(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	return at, at.size, nil
}

func (s *Store) openAt(ctx context.Context, name string) (*positioned, error) {
	o, err := s.openSource(ctx, name, 0, int64(len(sealMagic)))
	if err != nil {
		return nil, err
	}
	return &positioned{ctx, s, name, o.body.Size(), o.body.ModTime()}, o.Close()
}

// positioned is an object of a store that is read by position.
type positioned struct {
	ctx      context.Context
	from     *Store
	name     string
	size     int64
	modified time.Time
}

// ReadAt is io.ReaderAt's.
func (p *positioned) ReadAt(data []byte, offset int64) (int, error) {
	want := min(int64(len(data)), p.size-offset)
	if want <= 0 {
		return 0, io.EOF
	}
	o, err := p.from.openSource(p.ctx, p.name, offset, want)
	if err != nil {
		return 0, err
	}
	defer o.Close()
	if o.body.Size() != p.size || !o.body.ModTime().Equal(p.modified) {
		return 0, fmt.Errorf("read %s: it was replaced while it was read; try again", o.url)
	}
	n, err := io.ReadFull(o, data[:want])
	if err == nil && n < len(data) {
		err = io.EOF
	}
	return n, err
}

// Close is io.Closer's.
func (p *positioned) Close() error { return nil }
