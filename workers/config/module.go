package config

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpumux/gpumux/internal/launch"
)

// moduleCache holds what the Python modules of one folder define, as the interpreter that
// will run them reads them. Many goroutines may use it.
type moduleCache struct {
	interpreter, dir string

	mu    sync.Mutex // guards what follows
	known map[string]moduleInfo
}

type moduleInfo struct {
	// Functions are its public top-level functions in the order of the file.
	Functions []string `json:"functions"`
	// Problem is why the file cannot be read, such as a syntax error.
	Problem string `json:"problem"`
	stamp   string
}

// moduleReader lists what files define, without running them. "from os import system"
// must not make system a task. Loading the task shows what a star or an assignment does.
const moduleReader = `
import ast, json, sys

def read(name):
    with open(name + ".py", "rb") as file:
        tree = ast.parse(file.read(), name + ".py")
    own = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            own[node.name] = True
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                own.pop(alias.asname or alias.name.partition(".")[0], None)
    return [name for name in own if not name.startswith("_")]

out = {}
for name in json.load(sys.stdin):
    try:
        out[name] = {"functions": read(name)}
    except SyntaxError as error:
        out[name] = {"problem": "%s.py, line %s: %s: %s" % (name, error.lineno, type(error).__name__, error.msg)}
    except Exception as error:
        out[name] = {"problem": "%s.py: %s: %s" % (name, type(error).__name__, error)}
json.dump(out, sys.stdout)
`

// readLimit is how long the interpreter may take to read a folder's modules.
const readLimit = time.Minute

func newModuleCache(interpreter, dir string) *moduleCache {
	return &moduleCache{interpreter: interpreter, dir: dir, known: map[string]moduleInfo{}}
}

// isModule reports whether a module of this name lies in a folder itself, not below it.
func isModule(name string) bool { return moduleName.MatchString(name) && !strings.Contains(name, ".") }

func (m *moduleCache) names() (names []string) {
	files, _ := os.ReadDir(m.dir)
	for _, file := range files {
		if name, ok := strings.CutSuffix(file.Name(), ".py"); ok && isModule(name) {
			names = append(names, name)
		}
	}
	return names
}

// read lists what modules define; a missing file is left out. Changed ones are read anew.
func (m *moduleCache) read(names ...string) (map[string]moduleInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string]moduleInfo{}
	stamps := map[string]string{}
	for _, name := range names {
		info, err := os.Stat(filepath.Join(m.dir, name+".py"))
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		stamp := fmt.Sprint(info.ModTime().UnixNano(), info.Size())
		if known := m.known[name]; known.stamp == stamp {
			found[name] = known
		} else {
			stamps[name] = stamp
		}
	}
	if len(stamps) == 0 {
		return found, nil
	}
	fresh, err := readModules(m.interpreter, m.dir, slices.Sorted(maps.Keys(stamps)))
	if err != nil {
		return found, err
	}
	for name, stamp := range stamps {
		each := fresh[name]
		each.stamp = stamp
		m.known[name], found[name] = each, each
	}
	return found, nil
}

func readModules(interpreter, dir string, names []string) (map[string]moduleInfo, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	asked, _ := json.Marshal(names) // strings always marshal
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, interpreter, "-I", "-S", "-W", "ignore", "-c", moduleReader)
	cmd.Env = launch.HelperEnviron()
	cmd.Dir, cmd.Stdin, cmd.Stderr, cmd.WaitDelay = dir, bytes.NewReader(asked), &said, time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer within %s", readLimit)
	}
	found := map[string]moduleInfo{}
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil {
		return nil, fmt.Errorf("read the functions of %s with %s: %w%s", dir, interpreter, err, lastLine(said.String()))
	}
	return found, nil
}

// lastLine is a program's last line, to follow its error.
func lastLine(said string) string {
	said = strings.TrimSpace(said)
	if said == "" {
		return ""
	}
	return ": " + said[strings.LastIndexByte(said, '\n')+1:]
}
