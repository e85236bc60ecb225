package objects

import (
	"context"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/s3test"
)

// eachBucket runs a test on a folder, in memory and over S3.
func eachBucket(t *testing.T, test func(t *testing.T, s *Bucket)) {
	for name, url := range map[string]func(t *testing.T) string{
		"file": func(t *testing.T) string { return "file://" + t.TempDir() + "/store" },
		"mem":  func(*testing.T) string { return "mem://" },
		"s3":   func(t *testing.T) string { return s3test.New(t).URL("") },
		"prefix": func(t *testing.T) string {
			return s3test.New(t).URL("&prefix=team/a&request_checksum_calculation=when_supported")
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t, url(t))) })
	}
}

func open(t testing.TB, url string) *Bucket {
	t.Helper()
	b, err := Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func put(t testing.TB, b *Bucket, key, content string) {
	t.Helper()
	require.NoError(t, b.Put(t.Context(), key, strings.NewReader(content), Creation{Reserved: true}))
}

func get(t testing.TB, b *Bucket, name string) string {
	t.Helper()
	data, err := b.ReadAll(t.Context(), name)
	require.NoError(t, err)
	return string(data)
}

func TestOpen_SaysWhatIsWrong(t *testing.T) {
	server := s3test.New(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for url, want := range map[string]string{
		"/var/lib/gpumux":          "write it as a URL: file:///var/lib/gpumux",
		"gs://bucket":              `scheme "gs" is unknown; use file:///folder or s3://`,
		"file://var/lib":           "file:///var/lib",
		"file:///":                 "the root folder cannot be a store",
		"file://" + dir + "?x=1":   "a file URL takes no parameters",
		"file://" + file:           "not a directory",
		"file:///proc/gpumux":      "give a folder that user",
		"s3://?region=x":           "no bucket",
		"s3://bucket?nonsense=1":   `unknown query parameter "nonsense"`,
		"s3://key:secret@bucket":   "credentials belong in the environment",
		server.URL("&prefix=../x"): "is not a key",
		"s3://other?region=x&endpoint=" + server.Endpoint: `bucket "other" does not exist`,
	} {
		_, err := Open(t.Context(), url)
		require.ErrorContains(t, err, want, url)
		require.ErrorContains(t, err, "open store "+url)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "wrong")
	_, err := Open(t.Context(), server.URL(""))
	require.ErrorContains(t, err, "check region, endpoint and credentials")
	require.NotContains(t, err.Error(), "operation error")
}

// The cause comes before the long URLs.
func TestOpen_BeginsWithTheCause(t *testing.T) {
	away := httptest.NewServer(nil)
	away.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	for profile, want := range map[string]string{
		"":     "dial tcp " + away.Listener.Addr().String() + ": connect: connection refused: the bucket cannot be listed",
		"nope": "failed to get shared config profile, nope; see docs/store.md for the parameters (open store s3://bucket",
	} {
		t.Setenv("AWS_PROFILE", profile)
		_, err := Open(t.Context(), "s3://bucket?region=x&endpoint="+away.URL)
		require.Regexp(t, "^"+regexp.QuoteMeta(want), err)
	}
}

func TestOpen_ServerThatDoesNotAnswer(t *testing.T) {
	server := s3test.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ctx, server.URL(""))
	require.ErrorIs(t, err, context.Canceled)
}

func TestBucket_ReadsAndDeletes(t *testing.T) {
	eachBucket(t, func(t *testing.T, s *Bucket) {
		ctx := t.Context()
		put(t, s, "a/b/one", "0123456789")
		put(t, s, "a/b/two", "")
		put(t, s, "a/c", "c")
		put(t, s, "ab", "ab")
		r, err := s.Read(ctx, "a/b/one", 3, 4)
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, "3456", string(data))
		require.Equal(t, "0123456789", get(t, s, s.Locate("a/b/one")))
		require.Empty(t, get(t, s, "a/b/two"))
		_, err = s.Read(ctx, "a/b/three", 0, -1)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorContains(t, err, s.Locate("a/b/three"))
		_, err = s.Read(ctx, "ab", -1, -1)
		require.ErrorContains(t, err, "negative")

		require.NoError(t, s.Delete(ctx, "a/c"))
		require.NoError(t, s.Delete(ctx, "a/c"))
		for key, want := range map[string]bool{"a/b/one": true, "a/c": false, "ab": true} {
			exists, err := s.Exists(ctx, key)
			require.NoError(t, err)
			require.Equal(t, want, exists, key)
		}
	})
}

func keysIn(t *testing.T, s *Bucket, folder string) (keys []string) {
	for o, err := range s.Objects(t.Context(), folder) {
		require.NoError(t, err)
		require.EqualValues(t, len(o.Key), o.Bytes)
		require.WithinDuration(t, time.Now(), o.Changed, time.Minute)
		keys = append(keys, o.Key)
	}
	slices.Sort(keys)
	return keys
}

func TestBucket_ListsAndDeletesFolders(t *testing.T) {
	eachBucket(t, func(t *testing.T, s *Bucket) {
		all := []string{"maps/a/1/out.jsonl", "maps/a/1/out.jsonl.parts/p", "maps/a/10/out.jsonl", "maps/ab/1/out.jsonl"}
		for _, key := range all {
			put(t, s, key, strings.Repeat("x", len(key)))
		}
		put(t, s, "elsewhere", "elsewhere")
		require.Equal(t, all, keysIn(t, s, "maps"))
		require.Equal(t, all[:3], keysIn(t, s, "maps/a"))
		require.Empty(t, keysIn(t, s, "nothing"))
		for range 2 {
			require.NoError(t, s.DeleteAll(t.Context(), "maps/a/1"))
		}
		require.Equal(t, all[2:], keysIn(t, s, "maps"))
		require.NoError(t, s.DeleteAll(t.Context(), "maps/ab/1/out.jsonl"))
		require.Equal(t, all[2:3], keysIn(t, s, "maps"))
		require.Equal(t, "elsewhere", get(t, s, "elsewhere"))
		for _, name := range []string{"", "..", "/", "maps/../elsewhere"} {
			require.Error(t, s.DeleteAll(t.Context(), name), name)
		}
	})
}
