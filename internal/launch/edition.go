package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const editionLength = 6

// An edition tells versions of a task's code apart: it is a short hash of the files that
// the task is written in, which are its own file and the modules beside it that it
// imports, the files that a command names, or a program's binary. The same code has the
// same edition on every machine and in every folder. A file is read again only when it
// has changed.

// Code says where the code of a task is. One of Target and Command is set; the zero Code
// has the edition "".
type Code struct {
	// Dir is the folder that relative paths start from.
	Dir string
	// Target is "file.py:function", "module:function" or "file.R:function".
	Target  string
	Command []string
}

// Edition hashes the files as they are now, and their imports as far as the text shows
// them: importlib.import_module does not count. Code in no file here, such as an
// installed package, counts by its name.
func (c Code) Edition() string { return hashOf(c.sources()) }

// Named is the edition of the code with all other files that a command names, such as a
// configuration. A command may write some of these itself, so it distinguishes maps, but
// not what one map may run.
func (c Code) Named() string {
	if len(c.Command) == 0 {
		return c.Edition()
	}
	return hashOf(c.command(func(int, string) bool { return true }))
}

// Files are the paths of the files that the edition covers.
func (c Code) Files() (paths []string) {
	files, _ := c.sources()
	for _, f := range files {
		paths = append(paths, f.path)
	}
	return paths
}

// Newest is the file of the code that was changed last, and when; it is empty when there
// is none.
func (c Code) Newest() (path string, changed time.Time) {
	files, _ := c.sources()
	for _, f := range files {
		if f.info.ModTime().After(changed) {
			path, changed = f.path, f.info.ModTime()
		}
	}
	return path, changed
}

// hashOf hashes files in their order, and words; it is empty when there are none.
func hashOf(files []*sourceFile, words []string) string {
	if len(files)+len(words) == 0 {
		return ""
	}
	hash := sha256.New()
	for _, file := range files {
		_, _ = hash.Write(file.sum[:])
	}
	for _, word := range words {
		_, _ = fmt.Fprintf(hash, "%d %s", len(word), word)
	}
	return hex.EncodeToString(hash.Sum(nil))[:editionLength]
}

func (c Code) sources() (files []*sourceFile, words []string) {
	if len(c.Command) > 0 {
		return c.command(c.script)
	}
	i := strings.LastIndexByte(c.Target, ':')
	if i < 0 {
		return nil, nil
	}
	module, function := c.Target[:i], c.Target[i+1:]
	if strings.HasSuffix(module, ".py") {
		path := c.path(module)
		return withImports(filepath.Dir(path), path), []string{function}
	}
	if strings.HasSuffix(module, ".R") {
		return withSourced(c.path(module)), []string{function}
	}
	var roots []string
	for base, rest := c.Dir, module; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, ".")
		base = filepath.Join(base, part)
		roots = append(roots, filepath.Join(base, "__init__.py"))
		if rest == "" {
			roots = append(roots, base+".py")
		}
	}
	files = withImports(c.Dir, roots...)
	if len(files) == 0 {
		function = c.Target
	}
	return files, []string{function}
}

// scripts are the extensions of files that are code wherever a command names them.
var scripts = []string{".py", ".sh", ".r", ".R", ".jl", ".pl", ".rb", ".js", ".lua", ".m"}

// script reports whether a word of a command, if it names a file, names code: the
// program, an interpreter's script, or a file with such an extension. Other files are
// data, and the command may write them.
func (c Code) script(at int, word string) bool {
	if at == 0 || slices.Contains(scripts, filepath.Ext(word)) {
		return true
	}
	first := slices.IndexFunc(c.Command[1:], func(word string) bool { return !strings.HasPrefix(word, "-") }) + 1
	return at == first && c.program() == ""
}

// command turns every wanted word that names a file into that file, with the imports of a
// Python file, and keeps every other word. The system's programs stay words: they differ
// between machines.
func (c Code) command(wanted func(at int, word string) bool) (files []*sourceFile, words []string) {
	for i, word := range c.Command {
		path := c.path(word)
		if i == 0 {
			word = filepath.Base(word)
			if path = c.program(); path == "" {
				words = append(words, word)
				continue
			}
		}
		f := readFile(path)
		switch {
		case f == nil || !wanted(i, word):
			words = append(words, word)
		case strings.HasSuffix(path, ".py"):
			files = append(files, withImports(filepath.Dir(path), path)...)
		default:
			files = append(files, f)
		}
	}
	return files, words
}

var systemFolders = []string{"/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/lib/", "/lib/"}

// program is the file of the first word, or empty for one of the system's.
func (c Code) program() string {
	path := c.Command[0]
	if strings.ContainsRune(path, filepath.Separator) {
		path = c.path(path)
	} else if found, err := exec.LookPath(path); err == nil {
		path = found
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil || slices.ContainsFunc(systemFolders, func(folder string) bool { return strings.HasPrefix(real, folder) }) {
		return ""
	}
	return real
}

func (c Code) path(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(c.Dir, name)
}
