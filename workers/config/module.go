package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// definition is the head of a public function at the top level of a Python file.
var definition = regexp.MustCompile(`(?m)^(?:async[ \t]+)?def[ \t]+(\pL[\pL\pN_]*)`)

// functions lists the public functions that a Python text defines at its top level. It
// may list one that stands in a string, or that the file replaces later. A process that
// loads a task of a folder refuses functions that the file has from elsewhere.
func functions(text string) (names []string) {
	for _, m := range definition.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// isModule reports whether a module of this name lies in a folder itself, not below it.
func isModule(name string) bool { return moduleName.MatchString(name) && !strings.Contains(name, ".") }

// functions lists what a module of the folder defines now, nothing if it cannot be read.
func (f folder) functions(module string) []string {
	text, _ := os.ReadFile(filepath.Join(f.base.Dir, module+".py"))
	return functions(string(text))
}

func (f folder) modules() (names []string) {
	files, _ := os.ReadDir(f.base.Dir)
	for _, file := range files {
		if name, ok := strings.CutSuffix(file.Name(), ".py"); ok && isModule(name) {
			names = append(names, name)
		}
	}
	return names
}
