package store

import (
	"bufio"
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

// s3Server speaks as much S3 as the store needs, addressed by path, with one bucket named "bucket".
type s3Server struct {
	mu      sync.Mutex
	objects map[string]s3Object
	uploads map[string]map[int][]byte
	log     []string
	// truncate breaks that many GET answers in the middle. refuse answers conditional writes as old servers do.
	truncate int
	refuse   bool
	url      string
}

type s3Object struct {
	data []byte
	time time.Time
}

func newS3(t testing.TB) *s3Server {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	s := &s3Server{objects: map[string]s3Object{}, uploads: map[string]map[int][]byte{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *s3Server) store(params string) string {
	return "s3://bucket?region=eu-west-1&endpoint=" + s.url + params
}

// requests returns the log so far and empties it.
func (s *s3Server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

// pending is the number of uploads neither completed nor given up.
func (s *s3Server) pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

func (s *s3Server) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

func s3Fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

func (s *s3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := s3Body(r)
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
		s3Fail(w, http.StatusForbidden, "AccessDenied")
	case bucket != "bucket":
		s3Fail(w, http.StatusNotFound, "NoSuchBucket")
	case key == "":
		s.list(w, query.Get("prefix"), query.Get("delimiter"), query.Get("max-keys"), query.Get("continuation-token"))
	case r.Method == http.MethodPost && query.Has("uploads"):
		id := strconv.Itoa(len(s.uploads) + 1)
		s.uploads[id] = map[int][]byte{}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case r.Method == http.MethodPut && query.Has("partNumber"):
		number, _ := strconv.Atoi(query.Get("partNumber"))
		s.uploads[query.Get("uploadId")][number] = body
		w.Header().Set("ETag", fmt.Sprintf(`"part%d"`, number))
	case r.Method == http.MethodPost:
		parts := s.uploads[query.Get("uploadId")]
		var whole []byte
		for _, number := range slices.Sorted(maps.Keys(parts)) {
			whole = append(whole, parts[number]...)
		}
		delete(s.uploads, query.Get("uploadId"))
		s.objects[key] = s3Object{whole, time.Now()}
		fmt.Fprint(w, "<CompleteMultipartUploadResult><ETag>whole</ETag></CompleteMultipartUploadResult>")
	case r.Method == http.MethodPut:
		if r.Header.Get("If-None-Match") == "*" {
			if s.refuse {
				s3Fail(w, http.StatusNotImplemented, "NotImplemented")
				return
			}
			if _, there := s.objects[key]; there {
				s3Fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
				return
			}
		}
		s.objects[key] = s3Object{body, time.Now()}
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

func (s *s3Server) get(w http.ResponseWriter, r *http.Request, key string) {
	o, there := s.objects[key]
	if !there {
		s3Fail(w, http.StatusNotFound, "NoSuchKey")
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

func (s *s3Server) list(w http.ResponseWriter, prefix, delimiter, most, after string) {
	type entry struct {
		Key          string
		Size         int
		LastModified string
	}
	type folder struct{ Prefix string }
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Contents              []entry
		CommonPrefixes        []folder
		NextContinuationToken string `xml:",omitempty"`
		IsTruncated           bool
	}
	limit, _ := strconv.Atoi(most)
	last := ""
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		name, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if below, _, inside := strings.Cut(name, delimiter); delimiter != "" && inside {
			key = prefix + below + delimiter
		}
		if key <= after || key == last {
			continue
		}
		if len(out.Contents)+len(out.CommonPrefixes) == min(limit, 1000) {
			out.IsTruncated, out.NextContinuationToken = true, last
			break
		}
		if strings.HasSuffix(key, "/") {
			out.CommonPrefixes = append(out.CommonPrefixes, folder{key})
		} else {
			o := s.objects[key]
			out.Contents = append(out.Contents, entry{key, len(o.data), o.time.UTC().Format(time.RFC3339)})
		}
		last = key
	}
	xml.NewEncoder(w).Encode(out)
}

// s3Body reads a request's body, which may be in chunks that carry a checksum at the end.
func s3Body(r *http.Request) ([]byte, error) {
	if !strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") {
		return io.ReadAll(r.Body)
	}
	in := bufio.NewReader(r.Body)
	var whole []byte
	for {
		size, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		hex, _, _ := strings.Cut(strings.TrimSpace(size), ";")
		n, err := strconv.ParseInt(hex, 16, 64)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			_, err := io.Copy(io.Discard, in)
			return whole, err
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		whole = append(whole, chunk[:n]...)
	}
}
