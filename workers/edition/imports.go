package edition

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mostModules bounds the followed modules, largestModule the text of one that is searched for imports.
const (
	mostModules   = 2000
	largestModule = 4 << 20
)

// importLine is an import statement: of modules, or of names, which may be modules and span several lines in brackets.
var importLine = regexp.MustCompile(`(?m)(?:^|[;:])[ \t]*(?:` +
	`from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|[^\n#]*)|import[ \t]+([^\n#;]+))`)

var moduleName = regexp.MustCompile(`\w+(?:\.\w+)*`)

// withImports are those of the Python files that exist, with what they import below folder, and so on. Their content decides the order.
func withImports(folder string, paths ...string) []*file {
	var found []*file
	seen := map[string]bool{}
	add := func(path string) bool {
		if exists, asked := seen[path]; asked {
			return exists
		}
		f := readFile(path)
		seen[path] = f != nil && len(found) < mostModules
		if seen[path] {
			found = append(found, f)
		}
		return seen[path]
	}
	for _, path := range paths {
		add(path)
	}
	for i := 0; i < len(found); i++ {
		for _, name := range found[i].imports {
			base, parts := folder, strings.Split(name, ".")
			if parts[0] == "" {
				// Relative: a dot is the file's own package, each further one the package above.
				base = filepath.Dir(found[i].path)
				for parts = parts[1:]; len(parts) > 0 && parts[0] == ""; parts = parts[1:] {
					base = filepath.Dir(base)
				}
			}
			for _, part := range parts {
				base = filepath.Join(base, part)
				add(filepath.Join(base, "__init__.py"))
				if add(base + ".py") {
					break
				}
			}
		}
	}
	return found
}

// importsOf are the modules that a Python text may import: "a" and "a.b" for "from a import b", with a leading dot for each level of a
// relative import.
func importsOf(text []byte) []string {
	var names []string
	for _, m := range importLine.FindAllStringSubmatch(strings.ReplaceAll(string(text), "\\\n", " "), -1) {
		from, what, modules := m[1], m[2], m[3]
		if from == "" {
			for module := range strings.SplitSeq(modules, ",") {
				names = append(names, moduleName.FindString(module))
			}
			continue
		}
		if strings.Trim(from, ".") != "" {
			names = append(names, from)
			from += "."
		}
		for line := range strings.SplitSeq(strings.Trim(what, "()"), "\n") {
			line, _, _ = strings.Cut(line, "#")
			for each := range strings.SplitSeq(line, ",") {
				if name := moduleName.FindString(each); name != "" {
					names = append(names, from+name)
				}
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}
