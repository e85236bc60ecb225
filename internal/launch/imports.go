package launch

import (
	"path/filepath"
	"regexp"
	"strings"
)

// follow returns those of the files that exist, then the files that they name, and so on.
func follow(paths []string, named func(*sourceFile) []string) (found []*sourceFile) {
	seen := map[string]bool{}
	for ; len(paths) > 0; paths = paths[1:] {
		path := paths[0]
		if seen[path] {
			continue
		}
		seen[path] = true
		if f := readFile(path); f != nil {
			found = append(found, f)
			paths = append(paths, named(f)...)
		}
	}
	return found
}

// withImports returns the Python files that exist, and their imports below folder.
func withImports(folder string, paths ...string) []*sourceFile {
	return follow(paths, func(f *sourceFile) (all []string) {
		for _, name := range f.names {
			base, parts := folder, strings.Split(name, ".")
			if parts[0] == "" {
				// Relative: a dot is the file's own package, each further one the package above.
				base = filepath.Dir(f.path)
				for parts = parts[1:]; len(parts) > 0 && parts[0] == ""; parts = parts[1:] {
					base = filepath.Dir(base)
				}
			}
			for _, part := range parts {
				base = filepath.Join(base, part)
				all = append(all, filepath.Join(base, "__init__.py"), base+".py")
			}
		}
		return all
	})
}

// importLine is an import statement: of modules, or of names, which may be modules and
// span several lines in brackets.
var importLine = regexp.MustCompile(`(?m)(?:^|[;:])[ \t]*(?:from[ \t]+([.\w]+)[ \t]+)?import\b[ \t]*(\([^)]*\)|[^\n#;]*)`)

var (
	moduleName = regexp.MustCompile(`\w+(?:\.\w+)*`)
	comment    = regexp.MustCompile(`#[^\n]*`)
)

// importsOf are the modules that a Python text may import: "a" and "a.b" for "from a
// import b", with a leading dot for each level of a relative import.
func importsOf(text []byte) (names []string) {
	for _, m := range importLine.FindAllStringSubmatch(strings.ReplaceAll(string(text), "\\\n", " "), -1) {
		from := m[1]
		if strings.Trim(from, ".") != "" {
			names = append(names, from)
			from += "."
		}
		for each := range strings.SplitSeq(comment.ReplaceAllString(m[2], ""), ",") {
			if name := moduleName.FindString(each); name != "" {
				names = append(names, from+name)
			}
		}
	}
	return names
}

// withSourced returns the R file, if it exists, and the files that it and they source. A
// task process looks from the folder of the first.
func withSourced(path string) []*sourceFile {
	return follow([]string{path}, func(f *sourceFile) (all []string) {
		for _, name := range f.names {
			if !filepath.IsAbs(name) {
				name = filepath.Join(filepath.Dir(path), name)
			}
			all = append(all, name)
		}
		return all
	})
}

// sourceCall is a call of source or sys.source in R with the name of a file.
var sourceCall = regexp.MustCompile(`(?m)^[^#\n]*\bsource\(\s*(?:file\s*=\s*)?["']([^"'\n]+)["']`)
