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
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%q is not a URL: %w", raw, err)
	}
	folder, name := path.Split(u.Path)
	if name == "" {
		return nil, fmt.Errorf("%s names no file; write s3://bucket/folder/items.jsonl", raw)
	}
	if u.Scheme == fileblob.Scheme && u.RawQuery == "" && (u.Host == "" || u.Host == "localhost") {
		return os.Open(filepath.FromSlash(u.Path)) // whatever its folder and name are
	}
	at := *u
	at.Path, at.RawPath = folder, ""
	p, err := openPlace(ctx, at.String(), false)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", raw, err)
	}
	s := &Store{url: raw, home: p}
	body, err := s.open(ctx, name, 0, -1)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &foreign{body, s}, nil
}

// foreign is an object that closes its place.
type foreign struct {
	*object
	from *Store
}

// Close is io.Closer's.
func (f *foreign) Close() error { return errors.Join(f.object.Close(), f.from.Close()) }
