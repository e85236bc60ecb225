package store

import (
	"context"
	"errors"
	"fmt"
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

// reachTimeout bounds how long opening waits for a server that does not answer.
const reachTimeout = 30 * time.Second

// place is a folder of objects behind a URL.
type place struct {
	scheme, host string
	// path is the folder's absolute path within the host, without a slash at the end; empty for the whole of it.
	path   string
	query  url.Values
	bucket *blob.Bucket
	// dir is the folder on disk, empty when the place is not on disk.
	dir string
}

func openPlace(ctx context.Context, raw string, write bool) (*place, error) {
	if strings.HasPrefix(raw, "/") {
		return nil, fmt.Errorf("this is a path; write it as a URL: file://%s", raw)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("not a URL (%w); write file:///var/lib/gpumux or s3://bucket?region=eu-west-1", err)
	}
	if u.User != nil || u.Fragment != "" {
		return nil, errors.New("the URL carries credentials or a fragment; credentials belong in the environment")
	}
	p := &place{scheme: u.Scheme, host: u.Host, path: strings.TrimRight(u.Path, "/"), query: u.Query()}
	switch u.Scheme {
	case fileblob.Scheme:
		return p, p.openDisk(write)
	case s3blob.Scheme:
		return p, p.openS3(ctx)
	case memblob.Scheme:
		p.bucket = memblob.OpenBucket(&memblob.Options{NoMD5: true})
		return p, nil
	}
	return nil, fmt.Errorf("scheme %q is unknown; use file:///folder or s3://bucket?region=…", u.Scheme)
}

func (p *place) openDisk(write bool) (err error) {
	switch {
	case p.host != "" && p.host != "localhost":
		return fmt.Errorf("%q stands where a host does; a folder has three slashes: file:///%s%s", p.host, p.host, p.path)
	case len(p.query) > 0:
		return errors.New("a file URL takes no parameters; leave out what follows the question mark")
	case p.path == "":
		return errors.New("the root folder cannot be a store; name a folder such as file:///var/lib/gpumux")
	}
	p.host, p.dir = "", filepath.Clean(filepath.FromSlash(p.path))
	p.path = filepath.ToSlash(p.dir)
	if write {
		if err := prepareDisk(p.dir); err != nil {
			return fmt.Errorf("%w; give a folder that user %d may write, or change its owner", err, os.Getuid())
		}
	}
	p.bucket, err = fileblob.OpenBucket(p.dir, &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	return err
}

func (p *place) openS3(ctx context.Context) error {
	if p.host == "" {
		return errors.New("no bucket; write s3://bucket?region=eu-west-1")
	}
	params := p.query
	if prefix := strings.Trim(params.Get("prefix"), "/"); prefix != "" {
		p.path += "/" + prefix
	}
	if p.path != "" {
		if err := names.Key(p.path[1:]); err != nil {
			return err
		}
	}
	params.Del("prefix")
	// A stretch of an object has no checksum, and the library would complain of that at every read.
	defaults := map[string]string{"response_checksum_validation": "when_required"}
	if params.Has("endpoint") {
		defaults["use_path_style"], defaults["request_checksum_calculation"] = "true", "when_required"
	}
	for name, value := range defaults {
		if !params.Has(name) {
			params.Set(name, value)
		}
	}
	opener := url.URL{Scheme: p.scheme, Host: p.host, RawQuery: params.Encode()}
	bucket, err := blob.OpenBucket(ctx, opener.String())
	if err != nil {
		return fmt.Errorf("%w; see docs/store.md for the parameters", err)
	}
	if p.path != "" {
		bucket = blob.PrefixedBucket(bucket, p.path[1:]+"/")
	}
	p.bucket = bucket
	reach, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	there, err := bucket.IsAccessible(reach)
	if err == nil && there {
		return nil
	}
	bucket.Close()
	if err == nil {
		return fmt.Errorf("bucket %q does not exist; create it or correct the name, region and endpoint", p.host)
	}
	return fmt.Errorf("cannot list the bucket: %w; check region, endpoint and credentials (AWS_ACCESS_KEY_ID and"+
		" AWS_SECRET_ACCESS_KEY, a profile, or the machine's role) and that they may list, read, write and delete", err)
}

// url is the full URL of a key, without parameters.
func (p *place) url(key string) string {
	u := url.URL{Scheme: p.scheme, Host: p.host, Path: p.path + "/" + key}
	if p.host == "" {
		return p.scheme + "://" + u.EscapedPath()
	}
	return u.String()
}

// key is the key of a URL that lies in this place.
func (p *place) key(u *url.URL) (string, bool) {
	host := u.Host
	if u.Scheme == fileblob.Scheme && host == "localhost" {
		host = ""
	}
	if u.Scheme != p.scheme || host != p.host || u.User != nil {
		return "", false
	}
	for name, values := range u.Query() {
		if !p.query.Has(name) || p.query.Get(name) != values[0] {
			return "", false
		}
	}
	return strings.CutPrefix(u.Path, p.path+"/")
}
