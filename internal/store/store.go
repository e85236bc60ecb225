package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/results"
)

// Store is a folder of objects behind a URL. Many goroutines may use it.
type Store struct {
	Objects  *objects.Bucket
	Sources  *items.Sources
	identity atomic.Pointer[string]
	recent   recent
}

// Open opens the store at a URL of objects.Open, and proves that it can be used.
func Open(ctx context.Context, url string) (*Store, error) {
	in, err := objects.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return &Store{Objects: in, Sources: items.In(in), recent: recent{values: map[place]gpumux.Result{}}}, nil
}

// OpenSame opens the store at a URL, and makes sure that it is the one with this ID, if
// it is given one.
func OpenSame(ctx context.Context, raw, id string) (*Store, error) {
	if id == "" {
		return Open(ctx, raw)
	}
	other := fmt.Errorf("%s is another folder here than on the host of the server: mount the same one at this path, or give the server a store that all hosts reach, such as s3://bucket", raw)
	if u, err := url.Parse(raw); err == nil && u.Scheme == "file" {
		if _, err := os.Stat(filepath.Join(u.Path, names.Identity)); err != nil { // Open would make it
			return nil, other
		}
	}
	s, err := Open(ctx, raw)
	if err != nil {
		return nil, err
	}
	if is, err := s.Identity(ctx); err != nil || is != id {
		_ = s.Close()
		return nil, cmp.Or(err, other)
	}
	return s, nil
}

func (s *Store) Close() error { return s.Objects.Close() }

// Folder is that of a map's parts, which need not exist. The error is *objects.NameError.
func (s *Store) Folder(name string) (*Folder, error) {
	key, err := s.Objects.Writable(name)
	return &Folder{s, s.Objects, key}, err
}

// Lines yields the lines of a results file, each without its newline and valid until the
// next step. After an error nothing follows.
func (s *Store) Lines(ctx context.Context, name string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		o, err := s.Objects.Read(ctx, name, 0, -1)
		if err != nil {
			yield(nil, err)
			return
		}
		defer o.Close()
		for line, err := range results.Lines(o) {
			if !yield(bytes.TrimSuffix(line, []byte{'\n'}), cmp.Or(err, context.Cause(ctx))) {
				return
			}
		}
	}
}

// Identity is the ID of the store, the same for all URLs that open it.
func (s *Store) Identity(ctx context.Context) (string, error) {
	if known := s.identity.Load(); known != nil {
		return *known, nil
	}
	text, err := s.Objects.PutOnce(ctx, names.Identity, fmt.Appendf(nil, `{"id":%q}`, rand.Text()), objects.Creation{Reserved: true})
	if err != nil {
		return "", err
	}
	var identity struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(text, &identity); err != nil || identity.ID == "" {
		return "", &OwnerError{Problem: fmt.Sprintf("%s does not say which store this is: %.100q; delete it, and the next map makes it anew",
			s.Objects.Locate(names.Identity), text)}
	}
	s.identity.Store(&identity.ID)
	return identity.ID, nil
}

func (f *Folder) fileKey(index int64, name string) string {
	return fmt.Sprintf("%s/files/%d/%s", f.key, index, name)
}

// KeepFile stores a file of an item, in place of one with the same name.
func (f *Folder) KeepFile(ctx context.Context, index int64, name string, from io.Reader, bytes int64) error {
	return f.in.Put(ctx, f.fileKey(index, name), from, objects.Creation{Bytes: bytes})
}

func (f *Folder) OpenFile(ctx context.Context, index int64, name string) (io.ReadCloser, error) {
	if err := names.File(name); err != nil {
		return nil, err
	}
	return f.in.Read(ctx, f.fileKey(index, name), 0, -1)
}

// CopyFiles gives the same item of another map the files of a result.
func (f *Folder) CopyFiles(ctx context.Context, result gpumux.Result, to *Folder) error {
	for _, name := range result.Files {
		file, err := f.in.Read(ctx, f.fileKey(result.Index, name), 0, -1)
		if err != nil {
			return err
		}
		err = to.KeepFile(ctx, result.Index, name, file, file.Size())
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
