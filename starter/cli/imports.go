package cli

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mostModules bounds the modules that are followed, and largestModule the text that is read of one.
const (
	mostModules   = 2000
	largestModule = 4 << 20
)

// importLine is an import as Python writes it: of modules, or of names, which may be modules and go on over several lines in
// brackets.
var importLine = regexp.MustCompile(`(?m)(?:^|[;:])[ \t]*(?:` +
	`from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|[^\n#]*)|import[ \t]+([^\n#;]+))`)

var moduleName = regexp.MustCompile(`\w+(?:\.\w+)*`)

// withImports are Python files, and below folder those that they import, and so on. It reads the text alone: what no import
// statement names, such as the argument of importlib.import_module, is not found.
func withImports(folder string, files ...string) []string {
	found := slices.Clone(files)
	seen := map[string]bool{}
	for _, file := range files {
		seen[file] = true
	}
	add := func(path string) bool {
		if seen[path] {
			return true
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || len(found) >= mostModules {
			return false
		}
		seen[path] = true
		found = append(found, path)
		return true
	}
	for i := 0; i < len(found); i++ {
		for _, name := range imported(found[i]) {
			base, parts := folder, strings.Split(name, ".")
			if parts[0] == "" {
				// Relative: a dot is the file's own package, each further one the package above.
				base = filepath.Dir(found[i])
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

// imported are the modules that a file may import, "a" and "a.b" for "from a import b", with a dot in front for each level of a
// relative one.
func imported(path string) []string {
	// Opening a named pipe would wait for whoever writes it.
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, largestModule))
	if err != nil {
		return nil
	}
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
