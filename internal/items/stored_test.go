package items

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

// store is a bucket and the sources in it.
type store struct {
	Objects *objects.Bucket
	Sources *Sources
}

// eachStore runs a test on a folder, in memory and over S3.
func eachStore(t *testing.T, test func(t *testing.T, s *store)) {
	for name, url := range map[string]func(t *testing.T) string{
		"file": func(t *testing.T) string { return "file://" + t.TempDir() + "/store" },
		"mem":  func(*testing.T) string { return "mem://" },
		"s3":   func(t *testing.T) string { return s3test.New(t).URL("") },
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t, url(t))) })
	}
}

func open(t testing.TB, url string) *store {
	t.Helper()
	in, err := objects.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, in.Close()) })
	return &store{in, In(in)}
}

// identify makes the store one that was used before.
func identify(t testing.TB, s *store) {
	t.Helper()
	require.NoError(t, s.Objects.Put(t.Context(), names.Identity, strings.NewReader("{}"), objects.Creation{Reserved: true}))
}

func put(t testing.TB, s *store, key, content string) {
	t.Helper()
	require.NoError(t, s.Objects.Put(t.Context(), key, strings.NewReader(content), objects.Creation{Reserved: true}))
}

func get(t testing.TB, s *store, name string) string {
	t.Helper()
	data, err := s.Objects.ReadAll(t.Context(), name)
	require.NoError(t, err)
	return string(data)
}
