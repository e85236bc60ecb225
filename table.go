package gpumux

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// IsTable reports whether a source, a file or URL by its name, is a Parquet or an Arrow file, whose rows are the items.
func IsTable(source string) bool {
	name, values := CutValues(source)
	if strings.Contains(name, "://") {
		name, _, _ = strings.Cut(name, "?")
	}
	return !values && slices.Contains([]string{".parquet", ".arrow"}, strings.ToLower(path.Ext(name)))
}

// CheckColumns returns why these cannot be the columns that the items of a source have, or nil. Of none they have all.
func CheckColumns(source string, columns []string) error {
	if len(columns) > 0 && !IsTable(source) {
		return fmt.Errorf("go with Parquet and Arrow files, and %.200q is none by its name", source)
	}
	seen := map[string]bool{}
	for _, name := range columns {
		switch {
		case name == "":
			return errors.New("have an empty name")
		case len(name) > MaxName:
			return fmt.Errorf("have a name of %d bytes, more than %d", len(name), MaxName)
		case seen[name]:
			return fmt.Errorf("have %q twice", name)
		}
		seen[name] = true
	}
	return nil
}
