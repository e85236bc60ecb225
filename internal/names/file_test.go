package names

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFile(t *testing.T) {
	for _, good := range []string{"plot.png", "a b", "zażółć.txt", "...", ".hidden", "-x", strings.Repeat("a", 200)} {
		require.NoError(t, File(good), good)
	}
	for _, bad := range []string{
		"", ".", "..", "../a", "/etc/passwd", "a/b", `a\b`, "a\nb", "a\x00", "a\x7f", "\x80", "a.attrs", "a__0x2f", strings.Repeat("a", 201),
	} {
		require.Error(t, File(bad), bad)
	}
}
