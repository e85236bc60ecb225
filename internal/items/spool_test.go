package items

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func spoolFrom(r io.Reader, in Input) (*Spooled, error) {
	in.Open = func() (io.ReadCloser, error) { return io.NopCloser(r), nil }
	return Spool(in)
}

func spool(t testing.TB, text string, format Format) *Spooled {
	s, err := spoolFrom(strings.NewReader(text), Input{Format: format})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Remove()) })
	return s
}

func lines(t testing.TB, s *Spooled) []string {
	all, err := s.All()
	require.NoError(t, err)
	require.Len(t, all, int(s.Items))
	texts, bytes := []string{}, int64(0)
	for _, item := range all {
		texts = append(texts, string(item))
		bytes += int64(len(item)) + 1
	}
	require.Equal(t, bytes, s.Bytes)
	return texts
}

func TestSpool_JSONLines(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                 {},
		"\n \r\n\t\n":                      {},
		"\xef\xbb\xbf":                     {},
		"1":                                {"1"},
		"\xef\xbb\xbf1\r\n2\r\n":           {"1", "2"},
		"\n\n {\"a\" : 1 } \n\n[1]":        {`{"a" : 1 }`, "[1]"},
		"1.50\n1e2\n\"é\\u00e9\"\n":        {"1.50", "1e2", `"é\u00e9"`},
		"null\ntrue\n12345678901234567890": {"null", "true", "12345678901234567890"},
	} {
		require.Equal(t, want, lines(t, spool(t, text, JSONLines)), "%q", text)
	}
	a, b := spool(t, "1\n2", JSONLines), spool(t, "\xef\xbb\xbf1\r\n\r\n 2 \r\n", JSONLines)
	require.Equal(t, a.Hash, b.Hash)
	require.NotEqual(t, a.Hash, spool(t, "2\n1", JSONLines).Hash)
}

func TestSpool_CSV(t *testing.T) {
	for text, want := range map[string][]string{
		"":      {},
		"a,b\n": {},
		"\xef\xbb\xbfa,b\r\n1,x\r\n\r\n-2.5e3,\r\n": {`{"a":1,"b":"x"}`, `{"a":-2.5e3,"b":""}`},
		"z,a\n007,1 \n 1,1.\n+1,0x1\nNaN,1e5":       {`{"z":"007","a":"1 "}`, `{"z":" 1","a":"1."}`, `{"z":"+1","a":"0x1"}`, `{"z":"NaN","a":1e5}`},
		"\"a \"\"b\"\"\",ü\n\"x,\ny\",<&>\\\n":      {`{"a \"b\"":"x,\ny","ü":"<&>\\"}`},
		",x\n0,1\n":                                 {`{"Unnamed: 0":0,"x":1}`},
		"a\n12345678901234567890\ntrue\n":           {`{"a":12345678901234567890}`, `{"a":"true"}`},
	} {
		require.Equal(t, want, lines(t, spool(t, text, CSV)), "%q", text)
	}
}

func TestSpool_Delimiter(t *testing.T) {
	require.Equal(t, []string{`{"a":1,"b":"x,y"}`}, lines(t, spool(t, "a\tb\n1\tx,y\n", TSV)))
	for _, c := range []struct {
		delimiter rune
		format    Format
		text      string
		want      string
	}{
		{';', CSV, "a;b\n1;\"2;5\"\n", `{"a":1,"b":"2;5"}`},
		{'\t', CSV, "a\tb\n1\t2\n", `{"a":1,"b":2}`},
		{',', CSV, "a;b\n1;2\n", `{"a;b":"1;2"}`},
		{',', TSV, "a,b\n1,2\n", `{"a":1,"b":2}`},
	} {
		s, err := spoolFrom(strings.NewReader(c.text), Input{Format: c.format, Delimiter: c.delimiter})
		require.NoError(t, err)
		require.Equal(t, []string{c.want}, lines(t, s))
		require.NoError(t, s.Remove())
	}
}

func TestParseDelimiter(t *testing.T) {
	for text, want := range map[string]rune{";": ';', "tab": '\t', `\t`: '\t', "\t": '\t', "¦": '¦', " ": ' '} {
		got, err := ParseDelimiter(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", ";;", `"`, "\n", "\r", "\xff", "\x00", "comma"} {
		_, err := ParseDelimiter(text)
		require.ErrorContains(t, err, "give one character, such as ';', or tab", "%q", text)
	}
}

func TestSpool_SaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		format     Format
		text, want string
	}{
		{JSONLines, "1\n\n{\"a\":1\n3", `in:3: not JSON: unexpected end of JSON input: "{\"a\":1"; the value goes on over several lines`},
		{JSONLines, "[\n1,\n2]", "jq -c '.[]'"},
		{JSONLines, "1\nhello\n", `in:2: not JSON: invalid character 'h' looking for beginning of value: "hello"; write one JSON value per line`},
		{JSONLines, "1 2", `in:1: not JSON: invalid character '2' after top-level value: "1 2"`},
		{JSONLines, `{"a": NaN}`, "write null"},
		{JSONLines, "1\n\"\xff\"", "in:2: not UTF-8"},
		{JSONLines, strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), "in:1: nested more than 10,000 levels deep: \"[["},
		{JSONLines, "\"" + strings.Repeat("ü", 100), "ü…\";"},
		{JSONLines, "\x1f\x8b\x08\x00", "in: the gzip archive is cut off"},
		{JSONLines, "\xff\xfe1\x00", "it is UTF-16"},
		{CSV, "PK\x03\x04", "spreadsheet"},
		{CSV, "a,b\n1,2\n1,2,3\n", `in:3: 3 cells, but the header has 2: "1,2,3"; put cells`},
		{CSV, "a,b\n\"x\ny\",2\n1\n", "in:4: 1 cells, but the header has 2"},
		{CSV, "a,b,a\n", `in:1: columns 1 and 3 are both named "a": "a,b,a"; rename one`},
		{CSV, "a,,Unnamed: 1\n", `in:1: columns 2 and 3 are both named "Unnamed: 1"`},
		{CSV, "a\n\"x\ny\"z\n", "in: the row from line 2 to 3: extraneous or missing \" in quoted-field; put the cell"},
		{CSV, "a\nx\"y\n", `in:2: bare " in non-quoted-field; put the cell in double quotes`},
		{CSV, "a\n\xff\n", "in:2: not UTF-8"},
		{CSV, "\xffa\n", "in:1: the header is not UTF-8"},
		{CSV, "\"a;b\"\n1;2,3\n", "in:2: 2 cells, but the header has 1"},
		{CSV, "a;b\n1;2\n", `in:1: the header is one column with ';' in it: "a;b"; if that stands between the columns, give the delimiter ';'; if`},
		{CSV, "a\tb\n1\t2\n", "in it: \"a\\tb\"; if that stands between the columns, give the delimiter tab; if it belongs to the name, give the delimiter ','"},
		{TSV, "a,b\n1,2\n", "give the delimiter ','; if it belongs to the name, give the delimiter tab"},
		{TSV, "a\tb\n1\t2\t3\n", `in:2: 3 cells, but the header has 2: "1\t2\t3"`},
		{CSV, "a,b\r1,2\r3,4\r", `in:1: the header has a carriage return inside: "a,b\r1,2\r3,4"; if the lines end in CR alone, convert the file with tr`},
		{JSONLines, "1\n2\n\x00\x00\x00\x00", "in:3: not JSON: invalid character '\\x00' looking for beginning of value: \"\\x00\\x00\\x00\\x00\""},
	} {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		_, err := spoolFrom(strings.NewReader(c.text), Input{Name: "in", Format: c.format})
		var mistake *gpumux.SourceError
		require.ErrorAs(t, err, &mistake, "%q", c.text)
		require.ErrorContains(t, err, c.want)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

func TestSpool_BrokenInput(t *testing.T) {
	broken := errors.New("broken pipe")
	for _, text := range []string{"", "1\n2\n"} {
		for _, format := range []Format{JSONLines, CSV} {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			_, err := spoolFrom(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), Input{Name: "in", Format: format})
			require.ErrorIs(t, err, broken)
			require.ErrorContains(t, err, "read in: ")
			left, _ := os.ReadDir(dir)
			require.Empty(t, left)
		}
	}
	t.Setenv("TMPDIR", "/nowhere")
	_, err := spoolFrom(strings.NewReader("1"), Input{})
	require.ErrorContains(t, err, "check the space of the folder for temporary files")
}

func TestSpool_LongLines(t *testing.T) {
	long := `"` + strings.Repeat("x", 20<<20) + `"`
	s, err := spoolFrom(strings.NewReader("1\n"+long+"\n2"), Input{})
	require.NoError(t, err)
	defer s.Remove()
	require.EqualValues(t, 3, s.Items)
	require.EqualValues(t, len(long)+5, s.Bytes)
}

func FuzzSpool_JSONLines(f *testing.F) {
	for _, text := range []string{"", "1\n2", "\xef\xbb\xbf{}\r\n\r\n[]", "\"\xff\"", "{\n}", "1 \x0c 2"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := spoolFrom(bytes.NewReader(text), Input{})
		var want []string
		valid := true
		for i, line := range bytes.Split(text, []byte("\n")) {
			if i == 0 {
				line = bytes.TrimPrefix(line, []byte(bom))
			}
			line = bytes.Trim(line, " \t\r")
			if len(line) > 0 {
				want = append(want, string(line))
				valid = valid && json.Valid(line) && utf8.Valid(line)
			}
		}
		if !valid || err != nil {
			var mistake *gpumux.SourceError
			require.ErrorAs(t, err, &mistake)
			return
		}
		defer s.Remove()
		require.Equal(t, append([]string{}, want...), lines(t, s))
	})
}

func FuzzSpool_CSV(f *testing.F) {
	for _, text := range []string{"a,b\n1,2\n", "\xef\xbb\xbfa\r\n\"x\n\"\"y\"\r\n", "a,a\n", "a\n\"", "a\n\xff", ",\n1,2", "a\n1e999\n-0\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := spoolFrom(bytes.NewReader(text), Input{Format: CSV})
		if err != nil {
			var mistake *gpumux.SourceError
			require.ErrorAs(t, err, &mistake)
			return
		}
		defer s.Remove()
		rows, err := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte(bom)))).ReadAll()
		require.NoError(t, err)
		got := lines(t, s)
		require.Len(t, got, max(0, len(rows)-1))
		for i, line := range got {
			var object map[string]any
			decoder := json.NewDecoder(strings.NewReader(line))
			decoder.UseNumber()
			require.NoError(t, decoder.Decode(&object), line)
			require.Len(t, object, len(rows[0]))
			for column, name := range rows[0] {
				if strings.TrimSpace(name) == "" {
					name = fmt.Sprintf("Unnamed: %d", column)
				}
				switch value := object[name].(type) {
				case json.Number:
					require.Equal(t, rows[i+1][column], string(value))
				default:
					require.Equal(t, rows[i+1][column], value)
				}
			}
		}
	})
}
