package items

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/text"
)

func mistake(name string, line int, problem, text, hint string) *gpumux.SourceError {
	return &gpumux.SourceError{Name: name, Line: line, Problem: problem, Text: text, Hint: hint}
}

// itemReader walks over items, each valid until the next call. The end is io.EOF.
type itemReader interface {
	// next returns an item as one line of JSON, and where its line begins. At the end
	// that is where the source ends.
	next() (item []byte, at position, err error)
}

// jsonLines are the items of a JSON-lines file, as they are, without blank lines.
type jsonLines struct {
	results.LineReader
	name   string
	number int
	at     position
}

// readLine returns the next line, blank or not, and where it begins.
func (l *jsonLines) readLine() (line []byte, begin position, err error) {
	begin = l.at
	line, err = l.Next()
	l.number++
	l.at.pass(line)
	if err != nil {
		return nil, begin, err
	}
	if begin.offset == 0 {
		line = bytes.TrimPrefix(line, []byte(bom))
	}
	return line, begin, nil
}

func (l *jsonLines) next() ([]byte, position, error) {
	for {
		line, begin, err := l.readLine()
		if err != nil {
			return nil, begin, err
		}
		switch item := bytes.Trim(line, " \t\r\n"); {
		case len(item) == 0:
		case text.Valid(item):
			return item, begin, nil
		case utf8.Valid(item):
			return nil, begin, l.invalid(item)
		default:
			return nil, begin, mistake(l.name, l.number, "not UTF-8", text.Beginning(item), "convert the file with iconv, or let the item be its path if it is no text (--glob)")
		}
	}
}

func (l *jsonLines) invalid(item []byte) error {
	problem := fmt.Sprintf("not JSON: %v", json.Unmarshal(item, new(json.RawMessage)))
	hint := "write one JSON value per line, text in double quotes, or give --lines"
	line := string(item)
	switch {
	case strings.HasSuffix(problem, "exceeded max depth"):
		problem, hint = "nested more than 10,000 levels deep", "put such a value into a file and let the item be its path"
	case strings.HasPrefix(line, "NaN") || strings.Contains(line, ":NaN") || strings.Contains(line, " NaN") ||
		strings.Contains(line, "Infinity"):
		hint = "JSON has no NaN and no Infinity; write null"
	case strings.HasPrefix(line, "[") && !strings.Contains(line, "]"):
		hint = "the value goes on over several lines; if the file is one array, turn it into lines with jq -c '.[]'"
	case strings.HasPrefix(line, "{") && !strings.Contains(line, "}"):
		hint = "the value goes on over several lines, or the file ends within it; put each on one line with jq -c ."
	}
	return mistake(l.name, l.number, problem, text.Beginning(item), hint)
}

const bom = "\xef\xbb\xbf"

// openItems walks over an input of any format and checks every item. Its error names
// formats that gpumux does not read. Packed: the input was compressed.
func openItems(r io.Reader, in Input) (from itemReader, packed bool, err error) {
	plain, packed, err := unpack(r, in.Name)
	if err != nil {
		return nil, packed, err
	}
	head, err := peek(plain, 10)
	if err != nil && err != io.EOF {
		return nil, packed, err
	}
	for magic, hint := range map[string]string{
		"\xfd7zXZ\x00": "it is compressed with xz; compress it with gzip or zstd instead",
		"BZh91AY&SY":   "it is compressed with bzip2; compress it with gzip or zstd instead",
		"PK\x03\x04":   "it is a zip archive or a spreadsheet; export it as CSV or JSON lines",
		"PAR1":         "it is a Parquet file; give it a name that ends in .parquet",
		"\xff\xfe":     "it is UTF-16; convert it with iconv -f UTF-16 -t UTF-8",
		"\xfe\xff":     "it is UTF-16; convert it with iconv -f UTF-16 -t UTF-8",
	} {
		if strings.HasPrefix(string(head), magic) {
			return nil, packed, &gpumux.SourceError{Name: in.Name, Line: 1, Problem: "not text", Hint: hint}
		}
	}
	all := jsonLines{LineReader: results.LineReader{From: plain}, name: in.Name}
	switch in.Format {
	case Lines:
		return &textLines{jsonLines: all}, packed, nil
	case Values, Failed:
		return resultLines{&all, in.Format == Failed}, packed, nil
	case CSV, TSV:
		from, err = newCSVRows(plain, in)
		return from, packed, err
	}
	return &all, packed, nil
}

// textLines are the lines of a text as JSON strings, the empty ones too.
type textLines struct {
	jsonLines
	item []byte
}

func (l *textLines) next() ([]byte, position, error) {
	line, begin, err := l.readLine()
	if err != nil {
		return nil, begin, err
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
	if !utf8.Valid(line) {
		return nil, begin, mistake(l.name, l.number, "not UTF-8", text.Beginning(line), "convert the file with iconv")
	}
	l.item = results.AppendString(l.item[:0], line)
	return l.item, begin, nil
}

// resultLines are the lines of a results file that have a value, or those that failed.
type resultLines struct {
	*jsonLines
	failed bool
}

func (l resultLines) next() ([]byte, position, error) {
	for {
		line, begin, err := l.readLine()
		if err != nil {
			return nil, begin, err
		}
		outcome, err := results.ParseOutcome(line)
		if err != nil {
			return nil, begin, mistake(l.name, l.number, err.Error(), "", "name the results file of a map")
		}
		if (outcome.Kind != "") != l.failed {
			continue
		}
		if l.failed {
			if r, err := results.Parse(line); err != nil || r.Item == nil {
				return nil, begin, mistake(l.name, l.number, fmt.Sprintf("item %d failed, and its result lacks it", outcome.Index), "",
					"run the map that wrote the file with withItem")
			}
		}
		return bytes.TrimSuffix(line, []byte{'\n'}), begin, nil
	}
}

// Unwrap returns the item in a line that Items or Pick gave, and its key, if any.
func Unwrap(src contract.Source, line json.RawMessage) (item, key json.RawMessage, err error) {
	if !src.Values {
		return line, nil, nil
	}
	r, err := results.Parse(line)
	if err != nil {
		return nil, nil, &gpumux.SourceError{Name: src.URL, Problem: err.Error(), Hint: "the file was changed; run the map that wrote it again"}
	}
	if src.Failed {
		return r.Item, r.Key, nil
	}
	return r.Value, r.Key, nil
}
