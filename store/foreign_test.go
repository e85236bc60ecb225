package store

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

func TestOpenURL(t *testing.T) {
	server := s3test.New(t)
	put(t, open(t, server.URL(""), nil), "in/a b.jsonl", "2\n")
	for url, want := range map[string]string{
		"s3://bucket/in/a%20b.jsonl?region=eu-west-1&endpoint=" + server.Endpoint: "2\n",
	} {
		from, err := objects.OpenURL(t.Context(), url)
		require.NoError(t, err, url)
		r, err := from.Reader()
		require.NoError(t, err, url)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, want, string(data))
		at, err := objects.OpenURL(t.Context(), url)
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
		"s3://bucket/in/":     "names no file",
		"gs://bucket/x.jsonl": `scheme "gs" is unknown`,
		"s3://bucket/none.jsonl?region=eu-west-1&endpoint=" + server.Endpoint: "file does not exist",
		"s3://nope/x.jsonl?region=eu-west-1&endpoint=" + server.Endpoint:      `bucket "nope" does not exist`,
	} {
		_, err := objects.OpenURL(t.Context(), url)
		require.ErrorContains(t, err, want, url)
	}
}
