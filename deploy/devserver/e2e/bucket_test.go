package e2e

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// bucket is as much of an S3 server as a map needs, whose writes a test can trouble.
type bucket struct {
	mu      sync.Mutex
	objects map[string][]byte
	puts    int
	// trouble, if not nil, is called before each write; an answer other than 0 refuses it.
	trouble func(*http.Request) int
	url     string
}

func newBucket(t *testing.T) *bucket {
	t.Helper()
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"} {
		t.Setenv(name, value)
	}
	b := &bucket{objects: map[string][]byte{}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	b.url = "s3://bucket?region=eu-west-1&endpoint=" + server.URL
	return b
}

// give troubles writes from now on.
func (b *bucket) give(trouble func(*http.Request) int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble = trouble
}

// written is how many objects were written so far.
func (b *bucket) written() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.puts
}

// ServeHTTP is http.Handler's.
func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	trouble := b.trouble
	b.mu.Unlock()
	if trouble != nil && r.Method == http.MethodPut {
		if status := trouble(r); status != 0 {
			http.Error(w, "", status)
			return
		}
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	key, inside := strings.CutPrefix(r.URL.Path, "/bucket/")
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !inside || key == "":
		b.list(w, r)
	case r.Method == http.MethodPut:
		if _, there := b.objects[key]; there && r.Header.Get("If-None-Match") == "*" {
			w.WriteHeader(http.StatusPreconditionFailed)
			fmt.Fprint(w, "<Error><Code>PreconditionFailed</Code></Error>")
			return
		}
		b.objects[key] = data
		b.puts++
		w.Header().Set("ETag", `"one"`)
	case r.Method == http.MethodDelete:
		delete(b.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		object, there := b.objects[key]
		if !there {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "<Error><Code>NoSuchKey</Code></Error>")
			return
		}
		http.ServeContent(w, r, "", time.Unix(0, 0), bytes.NewReader(object))
	}
}

// list answers in one page, which 1,000 keys of a test fit into.
func (b *bucket) list(w http.ResponseWriter, r *http.Request) {
	type entry struct {
		Key          string
		Size         int
		LastModified string
	}
	type folder struct{ Prefix string }
	var out struct {
		XMLName        xml.Name `xml:"ListBucketResult"`
		Contents       []entry
		CommonPrefixes []folder
	}
	prefix, delimiter := r.URL.Query().Get("prefix"), r.URL.Query().Get("delimiter")
	most, _ := strconv.Atoi(r.URL.Query().Get("max-keys"))
	seen := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		name, ok := strings.CutPrefix(key, prefix)
		if below, _, deeper := strings.Cut(name, delimiter); ok && delimiter != "" && deeper {
			if common := prefix + below + delimiter; !seen[common] {
				seen[common] = true
				out.CommonPrefixes = append(out.CommonPrefixes, folder{common})
			}
		} else if ok && (most == 0 || len(out.Contents) < max(most, 1000)) {
			out.Contents = append(out.Contents, entry{key, len(b.objects[key]), time.Unix(0, 0).UTC().Format(time.RFC3339)})
		}
	}
	_ = xml.NewEncoder(w).Encode(out)
}
