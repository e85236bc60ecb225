// Package s3test gives tests an S3 server: as much of the protocol as a store speaks, in
// this process, with the troubles that servers make.
//
// It owns its objects in memory and a port on loopback. It never checks signatures beyond
// the name of the key and imports nothing of the product. A Server ends with its test.
package s3test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is an S3 server, addressed by path, with one bucket named "bucket".
type Server struct {
	// Endpoint is its http URL.
	Endpoint string

	mu       sync.Mutex
	objects  map[string]object
	uploads  map[string]map[int][]byte
	log      []string
	written  int
	truncate int
	refuse   bool
	trouble  func(*http.Request) int
	slow     time.Duration
}

type object struct {
	data []byte
	time time.Time
}

// Credentials are the environment of a process that opens a server's buckets.
var Credentials = map[string]string{
	"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
	"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}

// New starts a server and gives this process the credentials for it until the test ends.
func New(t testing.TB) *Server {
	for name, value := range Credentials {
		t.Setenv(name, value)
	}
	return Start(t)
}

// Start starts a server for a process that has the credentials.
func Start(t testing.TB) *Server {
	s := &Server{objects: map[string]object{}, uploads: map[string]map[int][]byte{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.Endpoint = server.URL
	return s
}

// URL names the bucket as a store, with more parameters such as &prefix=a.
func (s *Server) URL(params string) string {
	return "s3://bucket?region=eu-west-1&endpoint=" + s.Endpoint + params
}

// Requests returns the log so far, a line per request, and empties it.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

// Pending is the number of uploads neither completed nor given up.
func (s *Server) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// Keys are the names of all objects.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Written is how many objects were written so far.
func (s *Server) Written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

// Truncate breaks the next n answers with an object of more than 1,000 bytes.
func (s *Server) Truncate(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.truncate = n
}

// Truncating is how many answers are still to be broken.
func (s *Server) Truncating() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.truncate
}

// RefuseConditions answers conditional writes as old servers do.
func (s *Server) RefuseConditions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = true
}

// Trouble has trouble called before each write; other than 0 is a status to refuse it.
func (s *Server) Trouble(trouble func(*http.Request) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = trouble
}

// Slow makes every answer from now on take so much longer.
func (s *Server) Slow(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = by
}

func refusal(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

// ServeHTTP is http.Handler's.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	trouble, slow := s.trouble, s.slow
	s.mu.Unlock()
	time.Sleep(slow)
	if trouble != nil && r.Method == http.MethodPut {
		if status := trouble(r); status != 0 {
			http.Error(w, "", status)
			return
		}
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	switch {
	case !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=key/"):
		refusal(w, http.StatusForbidden, "AccessDenied")
	case bucket != "bucket":
		refusal(w, http.StatusNotFound, "NoSuchBucket")
	case key == "":
		s.list(w, query.Get("prefix"), query.Get("delimiter"), query.Get("max-keys"), query.Get("continuation-token"))
	case r.Method == http.MethodPost && query.Has("uploads"):
		id := strconv.Itoa(len(s.uploads) + 1)
		s.uploads[id] = map[int][]byte{}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case r.Method == http.MethodPut && query.Has("partNumber"):
		number, _ := strconv.Atoi(query.Get("partNumber"))
		s.uploads[query.Get("uploadId")][number] = data
		w.Header().Set("ETag", fmt.Sprintf(`"part%d"`, number))
	case r.Method == http.MethodPost:
		parts := s.uploads[query.Get("uploadId")]
		var whole []byte
		for _, number := range slices.Sorted(maps.Keys(parts)) {
			whole = append(whole, parts[number]...)
		}
		delete(s.uploads, query.Get("uploadId"))
		s.objects[key] = object{whole, time.Now()}
		s.written++
		fmt.Fprint(w, "<CompleteMultipartUploadResult><ETag>whole</ETag></CompleteMultipartUploadResult>")
	case r.Header.Get("X-Amz-Copy-Source") != "":
		from, _ := url.PathUnescape(r.Header.Get("X-Amz-Copy-Source"))
		o, exists := s.objects[strings.TrimPrefix(from, "bucket/")]
		if !exists {
			refusal(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		s.objects[key] = object{o.data, time.Now()}
		fmt.Fprint(w, "<CopyObjectResult><ETag>copy</ETag></CopyObjectResult>")
	case r.Method == http.MethodPut:
		if r.Header.Get("If-None-Match") == "*" {
			if s.refuse {
				refusal(w, http.StatusNotImplemented, "NotImplemented")
				return
			}
			if _, exists := s.objects[key]; exists {
				refusal(w, http.StatusPreconditionFailed, "PreconditionFailed")
				return
			}
		}
		s.objects[key] = object{data, time.Now()}
		s.written++
		w.Header().Set("ETag", `"one"`)
	case r.Method == http.MethodDelete && query.Has("uploadId"):
		delete(s.uploads, query.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		s.get(w, r, key)
	}
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, key string) {
	o, exists := s.objects[key]
	if !exists {
		refusal(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	if r.Header.Get("Range") != "" && len(o.data) == 0 {
		refusal(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
		return
	}
	if s.truncate > 0 && r.Method == http.MethodGet && len(o.data) > 1000 {
		s.truncate--
		w = &truncated{ResponseWriter: w}
	}
	http.ServeContent(w, r, "", o.time, bytes.NewReader(o.data))
}

// truncated sends the beginning of an answer and then breaks the connection.
type truncated struct {
	http.ResponseWriter
	sent int
}

func (t *truncated) Write(data []byte) (int, error) {
	if t.sent += len(data); t.sent > 700 {
		t.ResponseWriter.Write(data[:min(len(data), 700)])
		http.NewResponseController(t.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return t.ResponseWriter.Write(data)
}
