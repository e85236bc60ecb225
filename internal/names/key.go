// Package names has the names that the server and the store see, and says what may be
// one.
//
// It owns their grammar and their limits, and needs the standard library only. It never
// looks whether a thing exists.
package names

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Scratch is the folder of a store on disk that holds temporaries; no key begins with it.
const Scratch = ".tmp"

// Key returns what is wrong with the key of an object in a store, or nil.
func Key(key string) error {
	bad := func(why string) error {
		return fmt.Errorf("%.200q is not a key: %s; write it as folder/name.jsonl", key, why)
	}
	switch {
	case key == "":
		return bad("it is empty")
	case len(key) > 900:
		return bad("it is longer than 900 bytes")
	case !utf8.ValidString(key):
		return bad("it is not UTF-8")
	case strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
		return bad("it holds a control character or a backslash")
	// Both mean something to the blob library.
	case strings.Contains(key, "__0x") || strings.HasSuffix(key, ".attrs"):
		return bad("it holds __0x or ends in .attrs")
	}
	for i, element := range strings.Split(key, "/") {
		switch {
		case element == "":
			return bad("it begins or ends with a slash or holds two in a row")
		case element == "." || element == "..":
			return bad("it holds " + element)
		case i == 0 && element == Scratch:
			return bad(Scratch + " holds temporaries")
		case len(element) > 255:
			return bad("a name in it is longer than 255 bytes")
		}
	}
	return nil
}

// Gpumux itself fills these names of a store: its identity and the inputs of clients. No
// caller's file has such a name, or lies below one.
const (
	Identity = "store.json"
	Sources  = "sources"
	Batches  = "batches"
)

// PartsEnding ends the name of a results file's folder; see contract.PartsOf.
const PartsEnding = ".parts"

// Writable returns why a caller may not write under a key, or nil: it is gpumux's own, or
// below the parts of another map. A file system may take upper for lower case.
func Writable(key string) error {
	lower := strings.ToLower(key)
	first, _, _ := strings.Cut(lower, "/")
	switch strings.TrimSuffix(first, PartsEnding) {
	case Identity, Sources, Batches:
		return fmt.Errorf("%.200q is kept for gpumux itself; write it as maps/name.jsonl", key)
	}
	if strings.Count(lower+"/", PartsEnding+"/") > 1 {
		return amongParts(key)
	}
	return nil
}

func amongParts(key string) error {
	return fmt.Errorf("%.200q lies in a folder of parts, which belong to another results file; give another folder", key)
}

// Output returns what is wrong with the name of a results file, or nil. It does not ask
// the store, which calls it with the key that a URL stands for.
//
//workflowcheck:ignore
func Output(name string) error {
	scheme, _, isURL := strings.Cut(name, ":/")
	switch {
	case strings.Contains(strings.ToLower(name)+"/", PartsEnding+"/"):
		return amongParts(name)
	case strings.HasPrefix(name, "/"):
		return fmt.Errorf("%q is a path of a machine; use a key of the workers' store such as folder/name.jsonl, or a URL inside it", name)
	case !isURL || strings.Contains(scheme, "/"):
		return cmp.Or(Key(name), Writable(name))
	}
	u, err := url.Parse(name)
	if err != nil {
		return fmt.Errorf("%q is neither a key nor a URL: %w", name, err)
	}
	if path.Clean("/"+u.Path) != "/"+strings.TrimPrefix(u.Path, "/") {
		return fmt.Errorf("%q names no object: in its path is \".\" or \"..\", two slashes in a row, or one at the end", name)
	}
	return Key(path.Base(u.Path))
}

// ID returns what is wrong with the ID of a workflow, or nil. Temporal starts others too,
// but never serves them, because its clients send the ID in a header of their calls.
func ID(id string) error {
	const maxID = 1000
	bad := strings.IndexFunc(id, func(r rune) bool { return r < ' ' || r > '~' })
	switch {
	case strings.TrimSpace(id) == "":
		return fmt.Errorf("the ID of a map is empty")
	case len(id) > maxID:
		return fmt.Errorf("the ID %.80q of a map has %d bytes; Temporal takes at most %d", id, len(id), maxID)
	case bad >= 0:
		r, _ := utf8.DecodeRuneInString(id[bad:])
		return fmt.Errorf("the ID %.80q of a map holds %q; only printable ASCII characters can be used", id, r)
	}
	return nil
}

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

// Max is the most bytes of a name.
const Max = 1000

// ResultsScheme stands before a results file whose values are the items, FailedScheme
// before one whose failed items are.
const (
	ResultsScheme = "results:"
	FailedScheme  = "failed:"
)

// ArraysHead begins an argument with arrays in it, which no JSON begins with.
const ArraysHead = "\x93gpumux 1\n"

// CutResults returns the results file that a source of gpumux.ValuesOf or
// gpumux.FailedOf names, and which. Any other source it returns as it is.
func CutResults(source string) (output string, results, failed bool) {
	if output, failed = strings.CutPrefix(source, FailedScheme); failed {
		return output, true, true
	}
	output, results = strings.CutPrefix(source, ResultsScheme)
	return output, results, false
}

// Table reports whether a source is by its name a Parquet file of rows.
func Table(source string) bool {
	name, results, _ := CutResults(source)
	if strings.Contains(name, "://") {
		name, _, _ = strings.Cut(name, "?")
	}
	return !results && strings.EqualFold(path.Ext(name), ".parquet")
}

// Columns returns what is wrong with the columns to read of a source, or nil; none are
// all. The error continues a sentence that begins with the word columns.
func Columns(source string, columns []string) error {
	if len(columns) > 0 && !Table(source) {
		return fmt.Errorf("go with Parquet files, and %.200q is none by its name", source)
	}
	seen := map[string]bool{}
	for _, name := range columns {
		switch {
		case len(name) > Max:
			return fmt.Errorf("have a name of %d bytes, more than %d", len(name), Max)
		case seen[name]:
			return fmt.Errorf("have %q twice", name)
		}
		seen[name] = true
	}
	return nil
}
