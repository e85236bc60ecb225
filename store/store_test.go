package store

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

// eachStore runs a test on a folder, in memory and over S3.
func eachStore(t *testing.T, test func(t *testing.T, s *Store)) {
	for name, url := range map[string]func(t *testing.T) string{
		"file": func(t *testing.T) string { return "file://" + t.TempDir() + "/store" },
		"mem":  func(*testing.T) string { return "mem://" },
		"s3":   func(t *testing.T) string { return s3test.New(t).URL("") },
		"prefix": func(t *testing.T) string {
			return s3test.New(t).URL("&prefix=team/a&request_checksum_calculation=when_supported")
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t, url(t), nil)) })
	}
}

func open(t testing.TB, url string, keys Keys) *Store {
	s, err := Open(t.Context(), url, keys)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func put(t testing.TB, s *Store, key, content string) {
	w, err := s.Objects.CreateAs(t.Context(), key, objects.Creation{Own: true})
	require.NoError(t, err)
	_, err = io.WriteString(w, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
}

func get(t testing.TB, s *Store, name string) string {
	r, err := s.Objects.Read(t.Context(), name, 0, -1)
	require.NoError(t, err)
	defer r.Close()
	data, err := io.ReadAll(r)
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
		_, err := Open(t.Context(), url, nil)
		require.ErrorContains(t, err, want, url)
		require.ErrorContains(t, err, "open store "+url)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "wrong")
	_, err := Open(t.Context(), server.URL(""), nil)
	require.ErrorContains(t, err, "check region, endpoint and credentials")
}

func TestOpen_ServerThatDoesNotAnswer(t *testing.T) {
	server := s3test.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ctx, server.URL(""), nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestStore_Objects(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		put(t, s, "a/b/one", "0123456789")
		put(t, s, "a/b/two", "")
		put(t, s, "a/c", "c")
		put(t, s, "ab", "ab")
		r, err := s.Objects.Read(ctx, "a/b/one", 3, 4)
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, "3456", string(data))
		require.Equal(t, "0123456789", get(t, s, s.Objects.Locate("a/b/one")))
		require.Empty(t, get(t, s, "a/b/two"))
		_, err = s.Objects.Read(ctx, "a/b/three", 0, -1)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorContains(t, err, s.Objects.Locate("a/b/three"))
		_, err = s.Objects.Read(ctx, "ab", -1, -1)
		require.ErrorContains(t, err, "negative")

		require.NoError(t, s.Objects.Delete(ctx, "a/c"))
		require.NoError(t, s.Objects.Delete(ctx, "a/c"))
		for key, want := range map[string]bool{"a/b/one": true, "a/c": false, "ab": true} {
			there, err := s.Objects.Exists(ctx, key)
			require.NoError(t, err)
			require.Equal(t, want, there, key)
		}
	})
}

func TestRead_GoesOnAfterABrokenConnection(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""), nil)
	content := string(make([]byte, 5000)) + "end"
	put(t, s, "big", content)
	server.Truncate(3)
	require.Equal(t, content, get(t, s, "big"))
	require.Zero(t, server.Truncating())
}

func folderOf(t testing.TB, s *Store, name string) *Folder {
	t.Helper()
	f, err := s.Folder(name)
	require.NoError(t, err)
	return f
}

var parseResult, parseStored, plainLine = results.Parse, results.ParseStored, results.Plain

func (p partName) key(folder string) string { return folder + "/" + p.String() }

func readHead(t testing.TB, s *Store, key string) (partHead, error) {
	return parsePartHead([]byte(get(t, s, key)[:headBytes]))
}
