package edition

import (
	"path/filepath"
	"regexp"
)

// sourceCall is a call of source or sys.source in R with the name of a file.
var sourceCall = regexp.MustCompile(`(?m)^[^#\n]*\bsource\(\s*(?:file\s*=\s*)?["']([^"'\n]+)["']`)

// sourcedIn are the files that an R text sources by name.
func sourcedIn(text []byte) []string {
	var names []string
	for _, m := range sourceCall.FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

// withSourced are the R file, if it exists, and what it and they source, as the task process finds it: from the folder of the first.
func withSourced(path string) []*file {
	folder, seen := filepath.Dir(path), map[string]bool{path: true}
	var found []*file
	for paths := []string{path}; len(paths) > 0 && len(found) < mostModules; paths = paths[1:] {
		f := readFile(paths[0])
		if f == nil {
			continue
		}
		found = append(found, f)
		for _, name := range f.imports {
			if !filepath.IsAbs(name) {
				name = filepath.Join(folder, name)
			}
			if !seen[name] {
				seen[name] = true
				paths = append(paths, name)
			}
		}
	}
	return found
}
