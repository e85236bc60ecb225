package edition

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// length is how many hexadecimal digits an edition has.
const length = 6

// Code says where the code of a task is. One of Target and Command is set; the zero Code has the edition "".
type Code struct {
	// Dir is the folder that relative paths start from.
	Dir string
	// Target is "file.py:function" or "module:function".
	Target string
	// Command is a program and its arguments.
	Command []string
}

// Edition is that of the files as they are now, as far as their text shows them: an import that no statement names, such as that of
// importlib.import_module, is not among them. Code that is in no file here, such as an installed package, counts by its name alone.
func (c Code) Edition() string {
	files, words := c.parts()
	return of(files, words)
}

// Named is the edition of the code together with all other files that a command names, such as a configuration. A command may write
// some of these itself, so it tells maps apart and not what one map may run.
func (c Code) Named() string {
	if len(c.Command) == 0 {
		return c.Edition()
	}
	return of(c.command(func(int, string) bool { return true }))
}

// With is the edition of the code with modules that a process has loaded: Edition itself where it has them all, else that and,
// after a plus, a hash of the others.
func (c Code) With(loaded []string) string {
	files, words := c.parts()
	edition := of(files, words)
	var others []*file
	for _, path := range loaded {
		// One that is gone counts as an empty one.
		other := look(path)
		if other == nil {
			other = &none
		}
		if !slices.ContainsFunc(files, func(f *file) bool { return f.path == path || os.SameFile(f.info, other.info) }) {
			others = append(others, other)
		}
	}
	if len(others) == 0 {
		return edition
	}
	slices.SortFunc(others, func(a, b *file) int { return bytes.Compare(a.sum[:], b.sum[:]) })
	return edition + "+" + of(others, nil)
}

// Files are the paths of the files that the edition is of.
func (c Code) Files() []string {
	files, _ := c.parts()
	paths := make([]string, len(files))
	for i, file := range files {
		paths[i] = file.path
	}
	return paths
}

// Newest is the file of the code that was changed last, and when; it is empty when there is none.
func (c Code) Newest(loaded []string) (path string, changed time.Time) {
	files, _ := c.parts()
	for _, each := range loaded {
		if file := look(each); file != nil {
			files = append(files, file)
		}
	}
	for _, file := range files {
		if at := file.info.ModTime(); at.After(changed) {
			path, changed = file.path, at
		}
	}
	return path, changed
}

// Serves reports whether code of the edition have is what whoever asks for want means: any edition where want is empty, and
// any modules beyond what the text shows where want knows of none.
func Serves(want, have string) bool {
	return want == "" || want == have || !strings.Contains(want, "+") && Shown(have) == want
}

// Shown is the part of an edition that the text of the files shows.
func Shown(edition string) string {
	shown, _, _ := strings.Cut(edition, "+")
	return shown
}

// Join is the edition of several codes together.
func Join(editions ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(editions, "\n")))
	return hex.EncodeToString(sum[:])[:length]
}

// of hashes files in their order, and words.
func of(files []*file, words []string) string {
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
	return hex.EncodeToString(hash.Sum(nil))[:length]
}

// parts are the files of the code, and the words that say the rest.
func (c Code) parts() (files []*file, words []string) {
	if len(c.Command) > 0 {
		return c.command(c.script)
	}
	i := strings.LastIndexByte(c.Target, ':')
	if i < 0 {
		return nil, nil
	}
	place, function := c.Target[:i], c.Target[i+1:]
	if strings.HasSuffix(place, ".py") {
		path := c.path(place)
		return withImports(filepath.Dir(path), path), []string{function}
	}
	var roots []string
	for base, rest := c.Dir, place; rest != ""; {
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

// scripts are the endings of files that are code wherever a command names them.
var scripts = []string{".py", ".sh", ".r", ".R", ".jl", ".pl", ".rb", ".js", ".lua", ".m"}

// script reports whether a word of a command names code where it names a file: the program, the script of an interpreter, or a file
// that ends like one. Others are data, and may be what the command writes.
func (c Code) script(at int, word string) bool {
	if at == 0 || slices.Contains(scripts, filepath.Ext(word)) {
		return true
	}
	first := slices.IndexFunc(c.Command[1:], func(word string) bool { return !strings.HasPrefix(word, "-") }) + 1
	return at == first && c.program() == ""
}

// command counts every word that is wanted and names a file by what that holds, with what a Python file imports, and every other word
// by itself. A program of the system is one of these: it differs between machines.
func (c Code) command(wanted func(at int, word string) bool) (files []*file, words []string) {
	for i, word := range c.Command {
		path := c.path(word)
		if i == 0 {
			word = filepath.Base(word)
			if path = c.program(); path == "" {
				words = append(words, word)
				continue
			}
		}
		file := look(path)
		switch {
		case file == nil || !wanted(i, word):
			words = append(words, word)
		case strings.HasSuffix(path, ".py"):
			files = append(files, withImports(filepath.Dir(path), path)...)
		default:
			files = append(files, file)
		}
	}
	return files, words
}

// ofSystem are the folders of programs that belong to the system.
var ofSystem = []string{"/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/lib/", "/lib/"}

// program is the file of the first word, or empty where that is the system's.
func (c Code) program() string {
	path := c.Command[0]
	if strings.ContainsRune(path, filepath.Separator) {
		path = c.path(path)
	} else if found, err := exec.LookPath(path); err == nil {
		path = found
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil || slices.ContainsFunc(ofSystem, func(folder string) bool { return strings.HasPrefix(real, folder) }) {
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

// regular is the state of a file that can be read without waiting for somebody, as a named pipe would.
func regular(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return info
}
