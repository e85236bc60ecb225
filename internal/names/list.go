package names

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// List writes names with a comma or a like text between them. One that has a comma, a
// quotation mark or a line break is in quotation marks, with those inside doubled, as in
// CSV.
func List(names []string, between string) string {
	var all []string
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, ",\"\r\n") {
			name = `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
		}
		all = append(all, name)
	}
	return strings.Join(all, between)
}

// ParseList reads what List writes with commas: one line of CSV.
func ParseList(list string) ([]string, error) {
	in := csv.NewReader(strings.NewReader(list))
	names, err := in.Read()
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		return nil, fmt.Errorf("%w; put a name that has a comma or a quotation mark in quotation marks, and double those inside", wrong.Err)
	}
	if err != nil || slices.Contains(names, "") && !strings.Contains(list, `""`) {
		return nil, errors.New(`a name is empty; write one that has no letters as ""`)
	}
	if _, err := in.Read(); err != io.EOF {
		return nil, errors.New("a name has a line break; put it in quotation marks")
	}
	return names, nil
}
