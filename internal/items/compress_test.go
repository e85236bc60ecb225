package items

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func gzipped(t testing.TB, texts ...string) string {
	t.Helper()
	var b bytes.Buffer
	for _, text := range texts { // one member each
		w := gzip.NewWriter(&b)
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	return b.String()
}

func zstded(t testing.TB, texts ...string) string {
	t.Helper()
	var b bytes.Buffer
	for _, text := range texts {
		w, err := zstd.NewWriter(&b)
		require.NoError(t, err)
		_, err = io.WriteString(w, text)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	return b.String()
}

func TestSpool_ReadsThroughCompression(t *testing.T) {
	var long strings.Builder
	want := []string{}
	for i := range 50_000 {
		fmt.Fprintf(&long, "{\"n\":%d}\r\n", i)
		want = append(want, fmt.Sprintf(`{"n":%d}`, i))
	}
	plain := spool(t, long.String(), JSONLines)
	half := long.Len() / 2
	for name, text := range map[string]string{
		"gzip":                          gzipped(t, long.String()),
		"gzip, two members":             gzipped(t, long.String()[:half], long.String()[half:]),
		"zstd":                          zstded(t, long.String()),
		"zstd, two frames":              zstded(t, long.String()[:half], long.String()[half:]),
		"zstd, a frame that is skipped": "\x5a\x2a\x4d\x18\x03\x00\x00\x00abc" + zstded(t, long.String()),
	} {
		got := spool(t, text, JSONLines)
		require.Equal(t, want, lines(t, got), name)
		require.Equal(t, plain.Hash, got.Hash, "%s: the same items are the same source", name)
	}
	for name, text := range map[string]string{"gzip": gzipped(t, "a,b\n1,x\n"), "zstd": zstded(t, "a,b\n1,x\n")} {
		require.Equal(t, []string{`{"a":1,"b":"x"}`}, lines(t, spool(t, text, CSV)), name)
	}
	require.Empty(t, lines(t, spool(t, gzipped(t, ""), JSONLines)))
	require.Equal(t, []string{"1"}, lines(t, spool(t, strings.Repeat(gzipped(t, ""), 1000)+gzipped(t, "1"), JSONLines)), "members without text")
	require.Equal(t, []string{"1"}, lines(t, spool(t, gzipped(t, bom+"1"), JSONLines)))
}

func TestFormatOf_LooksBehindTheCompression(t *testing.T) {
	for name, want := range map[string]Format{"a.jsonl.gz": JSONLines, "b.ndjson.ZST": JSONLines, "c.csv.zst": CSV, "d.CSV.gzip": CSV, "e.csv": CSV, "f.tsv.gz": TSV} {
		got, err := FormatOf(name)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	for _, name := range []string{"a.gz", "a.txt.gz", "a.jsonl.bz2", "a.jsonl.gz.gz"} {
		_, err := FormatOf(name)
		require.ErrorContains(t, err, "with .gz or .zst behind it", name)
	}
}

func TestSpool_DamagedArchives(t *testing.T) {
	text := numbers(20_000) // valid as JSON lines and as CSV
	gz, zst := gzipped(t, text), zstded(t, text)
	flipped := func(s string, at int) string { return s[:at] + string(s[at]^0x55) + s[at+1:] }
	for name, c := range map[string]struct{ file, text, want string }{
		"gzip cut off":         {"in", gz[:len(gz)/2], "in: the gzip archive is cut off"},
		"gzip cut in its head": {"in", gz[:5], "in: the gzip archive is cut off"},
		"gzip checksum":        {"in", flipped(gz, len(gz)-6), "in: the gzip archive is damaged: "},
		"gzip and more":        {"in", gz + "rubbish behind it", "in: the gzip archive is damaged: "},
		"gzip cut in a member": {"in", gz + gz[:len(gz)/2], "in: the gzip archive is cut off"},
		"zstd cut off":         {"in", zst[:len(zst)-9], "in: the zstd archive is cut off"},
		"zstd damaged":         {"in", flipped(zst, len(zst)-2), "in: the zstd archive is damaged: "},
		"bzip2":                {"in", "BZh91AY&SYabc", "compress it with gzip or zstd instead"},
		"xz":                   {"in", "\xfd7zXZ\x00abc", "compress it with gzip or zstd instead"},
	} {
		for _, format := range []Format{JSONLines, CSV} {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			_, err := spoolFrom(strings.NewReader(c.text), Input{Name: c.file, Format: format})
			var mistake *gpumux.SourceError
			require.ErrorAs(t, err, &mistake, "%s", name)
			require.ErrorContains(t, err, c.want, name)
			require.NotContains(t, err.Error(), "read in: in", name)
			left, _ := os.ReadDir(dir)
			require.Empty(t, left)
		}
	}
}

// A broken stream is no mistake of the file. Another try may help.
func TestSpool_BrokenStreamOfAnArchive(t *testing.T) {
	broken := errors.New("connection reset")
	for _, text := range []string{gzipped(t, numbers(10_000)), zstded(t, numbers(10_000))} {
		for _, n := range []int{3, 4, 20, len(text) / 2} {
			from := io.MultiReader(strings.NewReader(text[:n]), iotest.ErrReader(broken))
			_, err := spoolFrom(from, Input{Name: "in"})
			require.ErrorIs(t, err, broken)
			var mistake *gpumux.SourceError
			require.False(t, errors.As(err, &mistake), "%v", err)
		}
	}
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}
