package objects

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/s3test"
)

func TestKey_RoundTrip(t *testing.T) {
	eachBucket(t, func(t *testing.T, s *Bucket) {
		for _, key := range []string{"ab", "a/b.jsonl", "maps/x:1/ü 1%+#?&=[].jsonl", ".hidden/x", "a..b/...c"} {
			got, err := s.Key(key)
			require.NoError(t, err, key)
			require.Equal(t, key, got)
			got, err = s.Key(s.Locate(key))
			require.NoError(t, err, s.Locate(key))
			require.Equal(t, key, got)
			put(t, s, key, key)
			require.Equal(t, key, get(t, s, s.Locate(key)))
		}
	})
}

func TestKey_NothingOutsideTheStore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, "file://"+dir+"/store")
	other := open(t, s3test.New(t).URL("&prefix=a"))
	for _, name := range []string{
		"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", "a/./b", ".tmp/x", "a\x00b", "a\nb", `a\b`, "\xff", "a.attrs",
		"a__0x2f__b", strings.Repeat("a", 256), strings.Repeat("a/", 500) + "a",
		"file:///etc/passwd", "file:/etc/passwd", "file://" + dir + "/store/../x", "file://" + dir + "/storeroom/x",
		"file://" + dir + "/store/%2e%2e/x", "file://" + dir + "/store", "file://host" + dir + "/store/x",
		"file://" + dir + "/store/a?b", "file://" + dir + "/store/a#b", "http://x/y", "mem:///x", "s3://bucket/x", "s3://bucket/a/x",
	} {
		_, err := s.Key(name)
		require.Error(t, err, name)
	}
	for _, name := range []string{"s3://bucket/x", "s3://bucket/ab/x", "s3://bucket/a/../x", "s3://other/a/x",
		"s3://bucket/a/x?endpoint=http://elsewhere", "file:///etc/passwd"} {
		_, err := other.Key(name)
		require.Error(t, err, name)
	}
	key, err := other.Key("s3://bucket/a/x?region=eu-west-1")
	require.NoError(t, err)
	require.Equal(t, "x", key)

	_, err = s.Key("s3://bucket/x")
	require.ErrorContains(t, err, "a key, or a URL inside file://"+dir+"/store/")
}
