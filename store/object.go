package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// reopenings is how often in a row a reader whose connection broke asks again for the rest.
const reopenings = 3

// abreast is how many requests to a server run at once.
const abreast = 16

// object reads a stretch of one object. When the connection breaks, it reads on from there.
type object struct {
	ctx          context.Context
	s            *Store
	key, url     string
	from, length int64
	sealing      sealing
	body         content
	broken       int
}

// Read opens length bytes of an object from offset, or all the rest when length is negative. The name is a key, a URL inside
// the store. A missing object is an fs.ErrNotExist.
func (s *Store) Read(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	return s.open(ctx, name, offset, length)
}

// open opens what Read does. In a store with keys the object must be encrypted.
func (s *Store) open(ctx context.Context, name string, offset, length int64) (*object, error) {
	return s.openAs(ctx, name, offset, length, sealedOnly)
}

// openSource is open for items, which people may put into the store as they are.
func (s *Store) openSource(ctx context.Context, name string, offset, length int64) (*object, error) {
	return s.openAs(ctx, name, offset, length, sealedOrPlain)
}

func (s *Store) openAs(ctx context.Context, name string, offset, length int64, how sealing) (*object, error) {
	key, err := s.Key(name)
	if err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, fmt.Errorf("read %s: offset %d is negative", s.Locate(key), offset)
	}
	o := &object{ctx: ctx, s: s, key: key, url: s.Locate(key), from: offset, length: length, sealing: how}
	if o.body, err = o.openContent(); err != nil {
		return nil, o.failed(err)
	}
	return o, nil
}

// Read is io.Reader's.
func (o *object) Read(data []byte) (int, error) {
	for {
		n, err := o.body.Read(data)
		o.from += int64(n)
		if o.length >= 0 {
			o.length -= int64(n)
		}
		if n > 0 {
			o.broken = 0
			return n, nil
		}
		if err == nil || err == io.EOF {
			return n, err
		}
		if o.broken++; o.broken > reopenings || o.ctx.Err() != nil {
			return n, o.failed(fmt.Errorf("at byte %d: %w", o.from, err))
		}
		if err := o.reopen(); err != nil {
			return n, err
		}
	}
}

func (o *object) reopen() error {
	again, err := o.openContent()
	if err != nil {
		return o.failed(err)
	}
	if again.Size() != o.body.Size() || !again.ModTime().Equal(o.body.ModTime()) {
		again.Close()
		return fmt.Errorf("read %s: it was replaced while it was read; try again", o.url)
	}
	o.body.Close()
	o.body = again
	return nil
}

// failed is an error of reading the object. Reading a damaged source again cannot help.
func (o *object) failed(err error) error {
	if damage := damageOf(err); damage != nil && o.sealing == sealedOrPlain {
		return &SourceError{Name: o.url, Problem: damage.Error(), Hint: "delete it, and put it there again"}
	}
	return absent("read", o.url, err)
}

// Close is io.Closer's.
func (o *object) Close() error { return o.body.Close() }

// Exists reports whether there is an object. The name is as for Read.
func (s *Store) Exists(ctx context.Context, name string) (bool, error) {
	key, err := s.Key(name)
	if err != nil {
		return false, err
	}
	there, err := s.home.bucket.Exists(ctx, key)
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", s.Locate(key), err)
	}
	return there, nil
}

// Delete removes an object; one that is not there is no error.
func (s *Store) Delete(ctx context.Context, name string) error {
	key, err := s.Key(name)
	if err != nil {
		return err
	}
	if err := s.home.bucket.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return fmt.Errorf("delete %s: %w", s.Locate(key), err)
	}
	return nil
}

// list calls f with the name of every object directly in a folder, in no order. Bytes is -1 on disk. A folder that does not exist
// is empty.
func (s *Store) list(ctx context.Context, folder string, f func(name string, bytes int64)) error {
	if s.home.dir != "" {
		return listDisk(ctx, filepath.Join(s.home.dir, filepath.FromSlash(folder)), f)
	}
	prefix := folder + "/"
	objects := s.home.bucket.List(&blob.ListOptions{Prefix: prefix, Delimiter: "/"})
	for {
		listed, err := objects.Next(ctx)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("list %s: %w", s.Locate(folder), err)
		case !listed.IsDir:
			f(listed.Key[len(prefix):], listed.Size)
		}
	}
}

// listDisk reads a folder a few thousand names at a time: the blob library would look at every file once per page.
func listDisk(ctx context.Context, dir string, f func(name string, bytes int64)) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	for ctx.Err() == nil {
		names, err := d.Readdirnames(4096)
		for _, name := range names {
			f(name, -1)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// absent makes an fs.ErrNotExist of the blob library's error for an object that does not exist.
func absent(verb, url string, err error) error {
	var key *KeyError
	if errors.As(err, &key) {
		return err
	}
	if gcerrors.Code(err) == gcerrors.NotFound {
		return fmt.Errorf("%s %s: %w", verb, url, fs.ErrNotExist)
	}
	return fmt.Errorf("%s %s: %w", verb, url, err)
}
