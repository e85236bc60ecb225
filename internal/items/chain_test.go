package items

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// each is a text, and an input behind it, as items and mistakes.
func each(text string, format Format) (lines []string, err error) {
	in := Input{Name: "in", Format: format, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	after := Input{Name: "after", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("\"after\"\n")), nil }}
	err = EachItem([]Input{in, after}, func(item []byte, wrong *gpumux.SourceError) error {
		if wrong != nil {
			item = []byte(wrong.Error())
		}
		lines = append(lines, string(item))
		return nil
	})
	return lines, err
}

// A wrong line takes the place of its item, and the walk goes on with the next line.
func TestEachItem_GoesOnBehindAWrongLine(t *testing.T) {
	deep := strings.Repeat("[", 20_000)
	for _, c := range []struct {
		text   string
		format Format
		want   []string
	}{
		{"1\n{\n\n\"\xff\"\n2", JSONLines, []string{"1", "in:2: not JSON", "in:4: not UTF-8", "2"}},
		{deep + "\n1\n", JSONLines, []string{"in:1: nested more than 10,000 levels deep", "1"}},
		{"a\n\xff\nb", Lines, []string{`"a"`, "in:2: not UTF-8", `"b"`}},
		{"a,b\n1,2\n3\n\xff,4\n6\"x,7\n\"8\"x,9\n10,11\n", CSV, []string{`{"a":1,"b":2}`, "in:3: 1 cells, but the header has 2",
			"in:4: not UTF-8", "in:5: bare \"", "in:6: extraneous or missing \"", `{"a":10,"b":11}`}},
	} {
		got, err := each(c.text, c.format)
		require.NoError(t, err)
		require.Len(t, got, len(c.want)+1, "%.80q", c.text)
		for i, want := range append(c.want, `"after"`) {
			require.True(t, strings.HasPrefix(got[i], want), "%.80q: %s", c.text, got[i])
		}
	}
}

// Where nothing tells where the next item begins, the walk ends.
func TestEachItem_EndsWhereItCannotGoOn(t *testing.T) {
	var packed bytes.Buffer
	archive := gzip.NewWriter(&packed)
	for i := range 10_000 {
		_, err := archive.Write([]byte{'"', byte('a' + i%26), byte('a' + i%7), '"', '\n'})
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	for _, c := range []struct {
		text    string
		format  Format
		atLeast int
		want    string
	}{
		{packed.String()[:packed.Len()-12], JSONLines, 1, "in: the gzip archive is cut off"},
		{"a\n1\n\"2\n3\"4\n5\n", CSV, 1, "in: the row from line 3 to 4: "},
		{"a\n1\n\"2\n3\n5\n", CSV, 1, "in: the row from line 3 to "},
		{"a,a\n1\n", CSV, 0, "in:1: columns 1 and 2"},
		{"\xff\xfe1\x00", JSONLines, 0, "in:1: not text"},
	} {
		got, err := each(c.text, c.format)
		require.ErrorContains(t, err, c.want, "%.80q", c.text)
		require.GreaterOrEqual(t, len(got), c.atLeast)
		require.NotContains(t, got, `"after"`)
	}
}
