package items

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/text"
)

// csvRows are rows of CSV as JSON objects with the header's names, in order. A cell
// written as a JSON number becomes one, except in columns of text; others are strings.
type csvRows struct {
	r    *csv.Reader
	name string
	// keys are the header's names with the JSON around them: {"a": and ,"b":
	keys []string
	text []bool
	row  []byte
}

func newCSVRows(r *bufio.Reader, in Input) (*csvRows, error) {
	if head, _ := r.Peek(len(bom)); string(head) == bom {
		r.Discard(len(bom))
	}
	first, _ := r.Peek(1)
	quoted := string(first) == `"`
	c := &csvRows{r: csv.NewReader(r), name: in.Name}
	switch {
	case in.Delimiter != 0:
		c.r.Comma = in.Delimiter
	case in.Format == TSV:
		c.r.Comma = '\t'
	}
	c.r.ReuseRecord = true
	c.r.FieldsPerRecord = -1
	header, err := c.r.Read()
	if err == io.EOF {
		return c, nil
	}
	if err != nil {
		return nil, c.rowError(err)
	}
	at := map[string]int{}
	for i, column := range header {
		line, _ := c.r.FieldPos(i)
		bad := func(problem, hint string) error {
			return mistake(in.Name, line, problem, strings.Join(header[:min(len(header), 8)], string(c.r.Comma)), hint)
		}
		if strings.TrimSpace(column) == "" {
			column = fmt.Sprintf("Unnamed: %d", i) // pandas writes its index so, and reads it by this name
		}
		switch before, again := at[column]; {
		case strings.Contains(column, "\r"):
			return nil, bad("the header has a carriage return inside",
				"if the lines end in CR alone, convert the file with tr '\\r' '\\n'")
		case in.Delimiter == 0 && len(header) == 1 && !quoted && strings.ContainsAny(column, ";\t|,"):
			other := column[strings.IndexAny(column, ";\t|,")]
			return nil, bad(fmt.Sprintf("the header is one column with %q in it", other),
				fmt.Sprintf("if that stands between the columns, give the delimiter %s; if it belongs to the name, give the delimiter %s",
					delimiterText(rune(other)), delimiterText(c.r.Comma)))
		case !utf8.ValidString(column):
			return nil, bad("the header is not UTF-8", "convert the file with iconv")
		case again:
			return nil, bad(fmt.Sprintf("columns %d and %d are both named %q", before, i+1, column), "rename one")
		}
		at[column] = i + 1
		before := ","
		if i == 0 {
			before = "{"
		}
		c.keys = append(c.keys, before+string(results.AppendString(nil, column))+":")
		c.text = append(c.text, slices.Contains(in.Text, column))
	}
	for _, column := range in.Text {
		if at[column] == 0 {
			return nil, &gpumux.SourceError{Name: in.Name, Line: 1, Problem: fmt.Sprintf("there is no column %q", column),
				Hint: "it has " + strings.Join(header, ", ")}
		}
	}
	return c, nil
}

func (c *csvRows) next() ([]byte, position, error) {
	cells, err := c.r.Read()
	if err == io.EOF {
		return nil, position{}, io.EOF
	}
	if err != nil {
		return nil, position{}, c.rowError(err)
	}
	line, _ := c.r.FieldPos(0)
	if len(cells) != len(c.keys) {
		return nil, position{}, mistake(c.name, line, fmt.Sprintf("%d cells, but the header has %d", len(cells), len(c.keys)),
			text.Beginning([]byte(strings.Join(cells, string(c.r.Comma)))),
			"put cells that hold the delimiter, a quote or a line break in double quotes")
	}
	c.row = c.row[:0]
	for i, cell := range cells {
		if !utf8.ValidString(cell) {
			line, _ := c.r.FieldPos(i)
			return nil, position{}, mistake(c.name, line, "not UTF-8", text.Beginning([]byte(cell)), "convert the file with iconv")
		}
		c.row = append(c.row, c.keys[i]...)
		if !c.text[i] && isNumber(cell) {
			c.row = append(c.row, cell...)
		} else {
			c.row = results.AppendString(c.row, cell)
		}
	}
	c.row = append(c.row, '}')
	return c.row, position{}, nil
}

func (c *csvRows) rowError(err error) error {
	parse, ok := errors.AsType[*csv.ParseError](err)
	if !ok {
		return err
	}
	wrong := mistake(c.name, parse.Line, parse.Err.Error(), "", "put the cell in double quotes and double each quote inside it")
	if parse.StartLine != parse.Line { // a quote was opened, and nobody knows where it was to end
		wrong.Line, wrong.Problem = 0, fmt.Sprintf("the row from line %d to %d: %s", parse.StartLine, parse.Line, wrong.Problem)
	}
	return wrong
}

// ParseDelimiter reads a delimiter of CSV: one character, or "tab".
func ParseDelimiter(word string) (rune, error) {
	if word == "tab" || word == `\t` {
		return '\t', nil
	}
	delimiter, size := utf8.DecodeRuneInString(word)
	if size != len(word) || delimiter == utf8.RuneError || strings.ContainsRune("\"\r\n\x00", delimiter) {
		return 0, fmt.Errorf("%q cannot stand between cells; give one character, such as ';', or tab", word)
	}
	return delimiter, nil
}

func delimiterText(delimiter rune) string {
	if delimiter == '\t' {
		return "tab"
	}
	return "'" + string(delimiter) + "'"
}

func isNumber(cell string) bool {
	if cell == "" || cell[0] != '-' && (cell[0] < '0' || cell[0] > '9') {
		return false
	}
	last := cell[len(cell)-1]
	return last >= '0' && last <= '9' && json.Valid([]byte(cell))
}
