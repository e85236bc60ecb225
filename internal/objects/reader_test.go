package objects

import (
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/s3test"
)

func TestOpenSource_EveryPosition(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 12_000) + "the end"
	eachBucket(t, func(t *testing.T, s *Bucket) {
		put(t, s, "in/x.parquet", large)
		for _, name := range []string{"in/x.parquet", s.Locate("in/x.parquet")} {
			at, err := OpenAt(t.Context(), s, name)
			require.NoError(t, err)
			require.EqualValues(t, len(large), at.Size())
			for range 30 {
				from := rand.IntN(len(large))
				data := make([]byte, rand.IntN(128_000))
				n, err := at.ReadAt(data, int64(from))
				if from+len(data) > len(large) {
					require.Equal(t, io.EOF, err)
				} else {
					require.NoError(t, err)
				}
				require.True(t, large[from:min(len(large), from+len(data))] == string(data[:n]), "%d bytes at %d", len(data), from)
			}
			require.NoError(t, at.Close())
		}
		_, err := OpenAt(t.Context(), s, "file:///etc/passwd")
		require.ErrorAs(t, err, new(*NameError))
	})
}

// Two versions of a file are never read as one.
func TestOpenSource_Replaced(t *testing.T) {
	s := open(t, "mem://")
	put(t, s, "x.parquet", "one")
	at, err := OpenAt(t.Context(), s, "x.parquet")
	require.NoError(t, err)
	put(t, s, "x.parquet", "three")
	_, err = at.ReadAt(make([]byte, 1), 0)
	require.ErrorContains(t, err, "x.parquet: it was replaced while it was read; try again")
}

func TestOpenURL(t *testing.T) {
	server := s3test.New(t)
	put(t, open(t, server.URL("")), "in/a b.jsonl", "2\n")
	for url, want := range map[string]string{
		"s3://bucket/in/a%20b.jsonl?region=eu-west-1&endpoint=" + server.Endpoint: "2\n",
	} {
		from, err := OpenURL(t.Context(), url)
		require.NoError(t, err, url)
		r, err := from.Reader()
		require.NoError(t, err, url)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, want, string(data))
		at, err := OpenURL(t.Context(), url)
		require.NoError(t, err, url)
		require.EqualValues(t, 2, at.Size())
		data = make([]byte, 4)
		n, err := at.ReadAt(data, 1)
		require.Equal(t, []any{1, "\n", io.EOF}, []any{n, string(data[:n]), err})
		n, err = at.ReadAt(data[:1], 0)
		require.Equal(t, []any{1, want[:1], error(nil)}, []any{n, string(data[:n]), err})
		require.NoError(t, at.Close())
	}
	for url, want := range map[string]string{
		"s3://bucket/in/?region=eu-west-1&endpoint=" + server.Endpoint: "names no file",
		"gs://bucket/x.jsonl": `scheme "gs" is unknown`,
		"s3://bucket/none.jsonl?region=eu-west-1&endpoint=" + server.Endpoint: "file does not exist",
		"s3://nope/x.jsonl?region=eu-west-1&endpoint=" + server.Endpoint:      `bucket "nope" does not exist`,
	} {
		_, err := OpenURL(t.Context(), url)
		require.ErrorContains(t, err, want, url)
	}
}

func TestFilesOf(t *testing.T) {
	server := s3test.New(t)
	for _, key := range []string{"in/b=1/x.csv", "in/a b.csv", "in2/y.csv", "in/empty/"} {
		require.NoError(t, open(t, server.URL("")).blobs.WriteAll(t.Context(), key, []byte("x"), nil))
	}
	query := "?region=eu-west-1&endpoint=" + server.Endpoint
	urls, keys, err := FilesOf(t.Context(), "s3://bucket/in/"+query)
	require.NoError(t, err)
	require.Equal(t, []string{"a b.csv", "b=1/x.csv"}, keys)
	for i, u := range urls {
		at, err := OpenURL(t.Context(), u)
		require.NoError(t, err, u)
		require.EqualValues(t, 1, at.Size(), keys[i])
		require.NoError(t, at.Close())
	}
	_, keys, err = FilesOf(t.Context(), "s3://bucket/"+query)
	require.NoError(t, err)
	require.Len(t, keys, 3)
	_, _, err = FilesOf(t.Context(), "s3://nope/in/"+query)
	require.ErrorContains(t, err, `bucket "nope" does not exist`)
	require.ErrorContains(t, err, "(open s3://nope/in/?region")
}

func TestRead_GoesOnAfterABrokenConnection(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""))
	content := string(make([]byte, 5000)) + "end"
	put(t, s, "big", content)
	server.Truncate(3)
	require.Equal(t, content, get(t, s, "big"))
	require.Zero(t, server.Truncating())
	server.Truncate(1)
	data, err := s.ReadExactly(t.Context(), "big", 4000, 1003)
	require.NoError(t, err)
	require.Equal(t, content[4000:], string(data))
	require.Zero(t, server.Truncating())
}
