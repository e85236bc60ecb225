package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"

	"gocloud.dev/blob/fileblob"
)

// ReadURL opens an object anywhere: file:///data/items.jsonl or s3://bucket/items.jsonl?region=eu-west-1, with the parameters
// and credentials of Open. It is for what a person at this machine named; names in a map's input go through a Store.
func ReadURL(ctx context.Context, raw string) (io.ReadCloser, error) {
	s, name, err := openForeign(ctx, raw)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return os.Open(name)
	}
	body, err := s.open(ctx, name, 0, -1)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &foreign{body, s}, nil
}

// openForeign opens the place of an object, which is nil where name is a file here.
func openForeign(ctx context.Context, raw string) (s *Store, name string, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, "", fmt.Errorf("%q is not a URL: %w", raw, err)
	}
	folder, name := path.Split(u.Path)
	if name == "" {
		return nil, "", fmt.Errorf("%s names no file; write s3://bucket/folder/items.jsonl", raw)
	}
	if u.Scheme == fileblob.Scheme && u.RawQuery == "" && (u.Host == "" || u.Host == "localhost") {
		return nil, filepath.FromSlash(u.Path), nil // whatever its folder and name are
	}
	at := *u
	at.Path, at.RawPath = folder, ""
	p, err := openPlace(ctx, at.String(), false)
	if err != nil {
		return nil, "", fmt.Errorf("open %s: %w", raw, err)
	}
	return &Store{url: raw, home: p}, name, nil
}

// OpenURL is ReadURL for an object that is read by position, and returns its size. Each read is a request, where the object lies on a
// server.
func OpenURL(ctx context.Context, raw string) (Positioned, int64, error) {
	s, name, err := openForeign(ctx, raw)
	if err != nil {
		return nil, 0, err
	}
	if s == nil {
		file, err := os.Open(name)
		if err != nil {
			return nil, 0, err
		}
		info, err := file.Stat()
		if err != nil {
			return nil, 0, errors.Join(err, file.Close())
		}
		return file, info.Size(), nil
	}
	at, err := s.openAt(ctx, name)
	if err != nil {
		return nil, 0, errors.Join(err, s.Close())
	}
	return foreignAt{at, s}, at.size, nil
}

// foreign is an object that closes its place.
type foreign struct {
	*object
	from *Store
}

// Close is io.Closer's.
func (f *foreign) Close() error { return errors.Join(f.object.Close(), f.from.Close()) }

// foreignAt is an object by position that closes its place.
type foreignAt struct {
	*positioned
	from *Store
}

// Close is io.Closer's.
func (f foreignAt) Close() error { return f.from.Close() }
