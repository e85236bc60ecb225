// Package objects keeps objects in a folder of a disk or on an S3 server.
//
// It owns which names lie inside, and that an object appears whole or not at all. It
// never looks into one. It deletes what it is told to, and temporary files older than a
// day. Nothing runs between calls.
package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
	"gocloud.dev/blob/s3blob"

	"github.com/gpumux/gpumux/internal/names"
)

const (
	// reachTimeout bounds how long opening waits for a server that does not answer.
	reachTimeout = 30 * time.Second
	// Abreast is how many requests to a server run at once.
	Abreast = 16
)

// Castagnoli is the table of CRC-32C, the checksum of all that is stored.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Bucket is a folder of objects behind a URL. Many goroutines may use it.
type Bucket struct {
	raw          string
	scheme, host string
	// path is absolute within the host, without a slash at the end; empty for all of it.
	path  string
	query url.Values
	blobs *blob.Bucket
	// dir is the folder on disk, or empty.
	dir string
}

// Open opens the bucket at a URL and proves that it can be used:
//
//	file:///var/lib/gpumux                                the folder is created; it must be writable
//	s3://bucket/folder?region=eu-west-1                   credentials come from the environment, as AWS tools find them
//	s3://bucket?prefix=folder&endpoint=http://host:9000   any server that speaks S3, addressed by path
//	mem://                                                lives as long as this Bucket, for tests
//
// With an endpoint, use_path_style=true and request_checksum_calculation=when_required
// are the default, as servers other than Amazon's want it.
func Open(ctx context.Context, raw string) (*Bucket, error) {
	b := &Bucket{raw: raw}
	if err := b.connect(ctx, raw); err != nil {
		return nil, fmt.Errorf("%w (open store %s)", err, raw)
	}
	return b, nil
}

func (b *Bucket) connect(ctx context.Context, raw string) error {
	if strings.HasPrefix(raw, "/") {
		return fmt.Errorf("this is a path; write it as a URL: file://%s", raw)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return fmt.Errorf("not a URL (%w); write file:///var/lib/gpumux or s3://bucket?region=eu-west-1", err)
	}
	if u.User != nil || u.Fragment != "" {
		return errors.New("the URL carries credentials or a fragment; credentials belong in the environment")
	}
	b.scheme, b.host, b.path, b.query = u.Scheme, u.Host, strings.TrimRight(u.Path, "/"), u.Query()
	switch u.Scheme {
	case fileblob.Scheme:
		return b.openDisk()
	case s3blob.Scheme:
		return b.openS3(ctx)
	case memblob.Scheme:
		b.blobs = memblob.OpenBucket(&memblob.Options{NoMD5: true})
		return nil
	}
	return fmt.Errorf("scheme %q is unknown; use file:///folder or s3://bucket?region=…", u.Scheme)
}

func (b *Bucket) openDisk() (err error) {
	switch {
	case b.host != "" && b.host != "localhost":
		return fmt.Errorf("%q stands where a host does; a folder has three slashes: file:///%s%s", b.host, b.host, b.path)
	case len(b.query) > 0:
		return errors.New("a file URL takes no parameters; leave out what follows the question mark")
	case b.path == "":
		return errors.New("the root folder cannot be a store; name a folder such as file:///var/lib/gpumux")
	}
	b.host, b.dir = "", filepath.Clean(filepath.FromSlash(b.path))
	b.path = filepath.ToSlash(b.dir)
	if err := prepareDisk(b.dir); err != nil {
		return fmt.Errorf("%w; give a folder that user %d may write, or change its owner", err, os.Getuid())
	}
	b.blobs, err = fileblob.OpenBucket(b.dir, &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	return err
}

func (b *Bucket) openS3(ctx context.Context) error {
	if b.host == "" {
		return errors.New("no bucket; write s3://bucket?region=eu-west-1")
	}
	params := b.query
	if prefix := strings.Trim(params.Get("prefix"), "/"); prefix != "" {
		b.path += "/" + prefix
	}
	if b.path != "" {
		if err := names.Key(b.path[1:]); err != nil {
			return err
		}
	}
	params.Del("prefix")
	// A stretch of an object has no checksum, and the library would complain at every read.
	defaults := map[string]string{"response_checksum_validation": "when_required"}
	if params.Has("endpoint") {
		defaults["use_path_style"], defaults["request_checksum_calculation"] = "true", "when_required"
	}
	for name, value := range defaults {
		if !params.Has(name) {
			params.Set(name, value)
		}
	}
	opener := url.URL{Scheme: b.scheme, Host: b.host, RawQuery: params.Encode()}
	blobs, err := blob.OpenBucket(ctx, opener.String())
	if err != nil {
		return fmt.Errorf("%w; see docs/store.md for the parameters", cause(err))
	}
	if b.path != "" {
		blobs = blob.PrefixedBucket(blobs, b.path[1:]+"/")
	}
	reach, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	exists, err := blobs.IsAccessible(reach)
	if err == nil && exists {
		b.blobs = blobs
		return nil
	}
	blobs.Close()
	if err == nil {
		return fmt.Errorf("bucket %q does not exist; create it or correct the name, region and endpoint", b.host)
	}
	return fmt.Errorf("%w: the bucket cannot be listed; check region, endpoint and credentials (AWS_ACCESS_KEY_ID and"+
		" AWS_SECRET_ACCESS_KEY, a profile, or the machine's role) and that they may list, read, write and delete", cause(err))
}

// Close closes the connections. Every Writer must be closed or aborted before.
func (b *Bucket) Close() error { return b.blobs.Close() }

// URL is the URL that the bucket was opened with.
func (b *Bucket) URL() string { return b.raw }

// OnDisk reports whether writing an object is no request to a server.
func (b *Bucket) OnDisk() bool { return b.scheme != s3blob.Scheme }

// Locate is the full URL of a key, without parameters.
func (b *Bucket) Locate(key string) string {
	u := url.URL{Scheme: b.scheme, Host: b.host, Path: b.path + "/" + key}
	if b.host == "" {
		return b.scheme + "://" + u.EscapedPath()
	}
	return u.String()
}

// NameError says that a name is no key and no URL of the bucket.
type NameError struct{ Problem string }

func (e *NameError) Error() string { return e.Problem }

// Key is the key that a name means. A name without a scheme is a key itself. A URL must
// lie inside the bucket, so that a map's input never reaches other files. The error is a
// *NameError.
func (b *Bucket) Key(name string) (string, error) { return b.allowed(name, names.Key) }

// Writable is the key of a name that a caller may write to. The error is a *NameError.
func (b *Bucket) Writable(name string) (string, error) {
	return b.allowed(name, names.Key, names.Writable)
}

// Output is the key of a results file that a caller names. The error is a *NameError.
func (b *Bucket) Output(name string) (string, error) { return b.allowed(name, names.Key, names.Output) }

func (b *Bucket) allowed(name string, checks ...func(key string) error) (string, error) {
	key, err := b.parse(name)
	for _, check := range checks {
		if err == nil {
			err = check(key)
		}
	}
	if err != nil {
		return key, &NameError{err.Error()}
	}
	return key, nil
}

func (b *Bucket) parse(name string) (key string, err error) {
	allowed := "a key, or a URL inside " + b.Locate("")
	if strings.HasPrefix(name, "/") {
		return "", fmt.Errorf("%q is a path of a machine; use %s", name, allowed)
	}
	scheme, _, isURL := strings.Cut(name, ":/")
	if !isURL || strings.Contains(scheme, "/") {
		return name, nil
	}
	u, err := url.Parse(name)
	if err != nil {
		return "", fmt.Errorf("%q is neither a key nor a URL: %w", name, err)
	}
	if u.Fragment != "" {
		return "", fmt.Errorf("%q holds a #; write it as %%23 in a URL, or use the key", name)
	}
	key, inside := b.cut(u)
	if !inside {
		return "", fmt.Errorf("%q lies outside the store; use %s", name, allowed)
	}
	return key, nil
}

func (b *Bucket) cut(u *url.URL) (key string, inside bool) {
	host := u.Host
	if u.Scheme == fileblob.Scheme && host == "localhost" {
		host = ""
	}
	if u.Scheme != b.scheme || host != b.host || u.User != nil {
		return "", false
	}
	for name, values := range u.Query() {
		if !b.query.Has(name) || b.query.Get(name) != values[0] {
			return "", false
		}
	}
	return strings.CutPrefix(u.Path, b.path+"/")
}

// Read opens length bytes of an object from offset, or the rest when length is negative.
// The name is a key or a URL inside the bucket. A missing object is an fs.ErrNotExist.
func (b *Bucket) Read(ctx context.Context, name string, offset, length int64) (*Reader, error) {
	key, err := b.Key(name)
	if err != nil {
		return nil, err
	}
	r := &Reader{ctx: ctx, b: b, key: key, offset: offset, length: length}
	if offset < 0 {
		return nil, fmt.Errorf("read %s: offset %d is negative", r.URL(), offset)
	}
	r.body, err = r.open()
	if err != nil && b.askAgain(key) {
		r.body, err = r.open()
	}
	if err != nil {
		return nil, absent("read", r.URL(), err)
	}
	return r, nil
}

// ReadAll reads a small object.
func (b *Bucket) ReadAll(ctx context.Context, name string) ([]byte, error) {
	r, err := b.Read(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data := bytes.NewBuffer(make([]byte, 0, r.Size()+bytes.MinRead))
	_, err = data.ReadFrom(r)
	return data.Bytes(), err
}

// ReadExactly reads length bytes of an object; that it ends before is a *DamageError.
func (b *Bucket) ReadExactly(ctx context.Context, name string, offset, length int64) ([]byte, error) {
	r, err := b.Read(ctx, name, offset, length)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if r.Size() < offset+length {
		return nil, errCutOff
	}
	data := make([]byte, length)
	if n, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("read %s: %d of %d bytes from byte %d: %w", r.URL(), n, length, offset, err)
	}
	return data, nil
}

func (b *Bucket) Size(ctx context.Context, name string) (int64, error) {
	r, err := b.Read(ctx, name, 0, 0)
	if errors.Is(err, errCutOff) {
		return 0, nil // servers refuse any range of an empty object
	}
	if err != nil {
		return 0, err
	}
	return r.Size(), r.Close()
}

// Create starts an object. It replaces one that is there when the Writer is closed, and
// then survives a crash of the machine. Every Writer needs Close or Abort.
func (b *Bucket) Create(ctx context.Context, name string, c Creation) (*Writer, error) {
	key, err := b.Writable(name)
	if c.Reserved {
		key, err = b.Key(name)
	}
	if err != nil {
		return nil, err
	}
	w := &Writer{ctx: ctx, b: b, key: key}
	if w.into, err = b.newSink(ctx, key, c); err != nil {
		return nil, w.failed(err)
	}
	return w, nil
}

// Put writes a whole object; see Create.
func (b *Bucket) Put(ctx context.Context, name string, from io.Reader, c Creation) error {
	w, err := b.Create(ctx, name, c)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.Copy(w, from); err != nil {
		return err
	}
	return w.Close()
}

// PutOnce writes a small object unless there is one, and returns the one that is there.
func (b *Bucket) PutOnce(ctx context.Context, name string, text []byte, c Creation) ([]byte, error) {
	found, err := b.ReadAll(ctx, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	for _, c.exclusive = range []bool{true, false} {
		err = b.Put(ctx, name, bytes.NewReader(text), c)
		var refusal interface{ ErrorCode() string }
		// If the server cannot refuse to overwrite, a writer in the same moment may be lost.
		if !errors.As(err, &refusal) || refusal.ErrorCode() != "NotImplemented" {
			break
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return b.ReadAll(ctx, name)
}

func (b *Bucket) Exists(ctx context.Context, name string) (bool, error) {
	key, err := b.Key(name)
	if err != nil {
		return false, err
	}
	exists, err := b.blobs.Exists(ctx, key)
	if err == nil && !exists && b.askAgain(key) {
		exists, err = b.blobs.Exists(ctx, key)
	}
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", b.Locate(key), err)
	}
	return exists, nil
}

// IsFolder reports whether a folder of the disk has the name of a key.
func (b *Bucket) IsFolder(key string) bool {
	info, err := os.Stat(b.onDisk(key))
	return b.dir != "" && err == nil && info.IsDir()
}

func (b *Bucket) onDisk(key string) string { return filepath.Join(b.dir, filepath.FromSlash(key)) }

// Move gives an object another key, as it lies there, sound or not.
func (b *Bucket) Move(ctx context.Context, key, to string) error {
	if err := b.blobs.Copy(ctx, to, key, nil); err != nil {
		return absent("move", b.Locate(key), err)
	}
	return b.Delete(ctx, key)
}
