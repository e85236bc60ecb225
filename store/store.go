package store

import (
	"context"
	"fmt"
	"sync"

	"gocloud.dev/blob/s3blob"

	"github.com/gpumux/gpumux/internal/contract"
)

// Store is a folder of objects behind a blob URL. Its methods may be called by many goroutines at once.
type Store struct {
	url  string
	home *place
	keys Keys

	mu      sync.Mutex
	indexes map[contract.Source]indexInfo
	// identity is empty until it was read.
	identity    string
	sealedHeads map[string]*sealedHead // by URL
}

// Open opens the store at a blob URL and proves that it can be used:
//
//	file:///var/lib/gpumux                                the folder is created; it must be writable
//	s3://bucket/folder?region=eu-west-1                   credentials come from the environment, as AWS tools find them
//	s3://bucket?prefix=folder&endpoint=http://host:9000   any server that speaks S3, addressed by path
//	mem://                                                lives as long as this Store, for tests
//
// With an endpoint, use_path_style=true and request_checksum_calculation=when_required are the default, which is what
// servers other than Amazon's want.
//
// Keys encrypt every object that is written and decrypt what is read; only items may then lie in the store unencrypted. With nil
// nothing is encrypted, and an encrypted object is an error.
func Open(ctx context.Context, url string, keys Keys) (*Store, error) {
	home, err := openPlace(ctx, url, true)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", url, err)
	}
	return &Store{url: url, home: home, keys: keys, indexes: map[contract.Source]indexInfo{}}, nil
}

// URL is the URL that the store was opened with.
func (s *Store) URL() string { return s.url }

// OnDisk reports whether the store is a folder, where writing an object is no request to a server.
func (s *Store) OnDisk() bool { return s.home.scheme != s3blob.Scheme }

// Close closes the connections. Every Writer must be closed or aborted before.
func (s *Store) Close() error { return s.home.bucket.Close() }
