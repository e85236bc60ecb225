package names

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxFiles is the most files that an item may keep, MaxFileBytes the most bytes of one.
	MaxFiles     = 100
	MaxFileBytes = 16 << 30
	// maxFileName leaves room for the folder before a file's name in a store.
	maxFileName = 200
)

// File returns what is wrong with the name of an item's file, or nil. It has no folders.
func File(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
	case len(name) > maxFileName:
		return fmt.Errorf("the file name %.40q… has %d bytes; at most %d are allowed", name, len(name), maxFileName)
	case !utf8.ValidString(name) || strings.ContainsAny(name, `/\`) || strings.ContainsFunc(name, unicode.IsControl):
	case strings.HasSuffix(name, ".attrs") || strings.Contains(name, "__0x"):
	default:
		return nil
	}
	return fmt.Errorf("%q is no name for a file; give a plain one such as plot.png, without a folder", name)
}
