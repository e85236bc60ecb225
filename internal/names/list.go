package names

import (
	"errors"
	"fmt"
	"strings"
)

// List writes names with a comma or a like text between them. One that has a comma or a
// quotation mark is in quotation marks, with those inside doubled, as in CSV.
func List(names []string, between string) string {
	var all []string
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, `,"`) {
			name = `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
		}
		all = append(all, name)
	}
	return strings.Join(all, between)
}

// ParseList reads what List writes. Inside of a name that does not begin with a quotation
// mark there may be some.
func ParseList(list string) (names []string, err error) {
	for {
		name, rest, more := strings.Cut(list, ",")
		if strings.HasPrefix(list, `"`) {
			if name, rest, err = cutQuoted(list[1:]); err != nil {
				return nil, err
			}
			more = rest != ""
			rest = strings.TrimPrefix(rest, ",")
		} else if name == "" {
			return nil, errors.New(`a name is empty`)
		}
		names, list = append(names, name), rest
		if !more {
			return names, nil
		}
	}
}

// cutQuoted cuts a name off that ends with a quotation mark.
func cutQuoted(list string) (name, rest string, err error) {
	var b strings.Builder
	for {
		before, after, ended := strings.Cut(list, `"`)
		b.WriteString(before)
		switch {
		case !ended:
			return "", "", fmt.Errorf(`the quotation mark before %.40q is never closed`, b.String())
		case after == "" || after[0] == ',':
			return b.String(), after, nil
		case after[0] != '"':
			return "", "", fmt.Errorf(`behind the quotation marks around %.40q give a comma, or double those inside`, b.String())
		}
		b.WriteByte('"')
		list = after[1:]
	}
}
