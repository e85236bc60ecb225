package launch

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	// wholeFile is the size up to which all of a file counts. A larger one is a command's
	// data, such as a model, and counts by its size and both ends, so no map waits for a
	// long read.
	wholeFile = 64 << 20
	// settled is the age from which a file's time shows every change. A younger file may
	// change again within the same tick of its file system's clock.
	settled = 2 * time.Second
)

// sourceFile is the immutable state of one file.
type sourceFile struct {
	path string
	info os.FileInfo
	sum  [sha256.Size]byte
	// names are the modules that a Python file may import, or the files that an R file
	// sources.
	names []string
	// final says that a file with the same size and time has the same content.
	final bool
}

var (
	cacheMu sync.Mutex
	cache   = map[string]*sourceFile{}
)

// readFile reads a file unless it has not changed since the last time. It is nil unless
// the file is a regular one: a named pipe would wait for a writer.
func readFile(path string) *sourceFile {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	cacheMu.Lock()
	last := cache[path]
	cacheMu.Unlock()
	if last != nil && last.final && os.SameFile(last.info, info) && last.info.Size() == info.Size() && last.info.ModTime().Equal(info.ModTime()) {
		return last
	}
	now := &sourceFile{path: path, info: info, final: time.Since(info.ModTime()) > settled}
	if now.read() != nil {
		return nil
	}
	cacheMu.Lock()
	defer cacheMu.Unlock()
	cache[path] = now
	return now
}

func (f *sourceFile) read() error {
	opened, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer opened.Close()
	from := io.Reader(opened)
	if size := f.info.Size(); size > wholeFile {
		from = io.MultiReader(strings.NewReader(fmt.Sprint(size)), io.NewSectionReader(opened, 0, wholeFile/2),
			io.NewSectionReader(opened, size-wholeFile/2, wholeFile/2))
	}
	text, err := io.ReadAll(from)
	f.sum = sha256.Sum256(text)
	switch filepath.Ext(f.path) {
	case ".py":
		f.names = importsOf(text)
	case ".R":
		for _, m := range sourceCall.FindAllSubmatch(text, -1) {
			f.names = append(f.names, string(m[1]))
		}
	}
	return err
}

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
