package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpumux/gpumux/starter"
)

// wholeFile is the size up to which a file counts by what it holds. A larger one is data that a command is given, such as a model,
// and counts by its size and time, so that no map waits for it to be read.
const wholeFile = 64 << 20

// editionOf tells versions of a local task apart by the files that it is written in. It is empty when none is to be seen.
func editionOf(files ...string) string {
	hash, seen := sha256.New(), false
	for _, name := range files {
		// Opening a named pipe would wait for whoever writes it.
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if seen {
			_, _ = hash.Write([]byte{0}) // so that it matters where one file ends and the next begins
		}
		if info.Size() > wholeFile {
			seen = true
			_, _ = fmt.Fprint(hash, info.Size(), info.ModTime().UnixNano())
			continue
		}
		seen = add(hash, name) || seen
	}
	if !seen {
		return ""
	}
	return hex.EncodeToString(hash.Sum(nil))[:6]
}

// add puts what a file holds into a hash, and says whether it could.
func add(hash io.Writer, name string) bool {
	file, err := os.Open(name)
	if err != nil {
		return false
	}
	defer file.Close()
	_, err = io.Copy(hash, file)
	return err == nil
}

// files are what the edition of a task is of: its own file and the modules beside it that it imports; of a command every word that
// names a file, but not a program of the system.
func (t localTask) files(target string) []string {
	switch {
	case len(t.config.Command) > 0:
		files := t.config.Command
		if !strings.ContainsRune(files[0], filepath.Separator) {
			files = files[1:]
		}
		for _, file := range files {
			if strings.HasSuffix(file, ".py") {
				files = append(slices.Clip(files), withImports(filepath.Dir(file), file)[1:]...)
			}
		}
		return files
	case strings.HasSuffix(target, ".py"):
		return withImports(t.scope, filepath.Join(t.scope, filepath.Base(target)))
	}
	module := filepath.Join(t.dir, filepath.Join(strings.Split(target, ".")...))
	return withImports(t.dir, module+".py", filepath.Join(module, "__init__.py"))
}

func (t *localTask) read(target string) {
	t.sources = slices.Clip(t.files(target))
	t.edition = editionOf(t.sources...)
}

// whole is the edition of the task and of its reduce, where that is a task, too.
func (t *localTask) whole() string {
	if t.reduce == nil || t.reduce.edition == "" {
		return t.edition
	}
	return editionOf(append(t.sources, t.reduce.sources...)...)
}

// earlier are the maps of the same task, input and options whose state is kept here but whose task had another edition, newest
// first.
func earlier(m starter.Map, id string) []string {
	base, ok := strings.CutSuffix(id, "-"+m.Edition)
	if !ok || m.Edition == "" {
		return nil
	}
	own, err := stateFolder("local", id)
	if err != nil {
		return nil
	}
	folders, err := filepath.Glob(filepath.Join(filepath.Dir(own), base+"-??????"))
	if err != nil {
		return nil
	}
	type state struct {
		id   string
		when int64
	}
	var found []state
	for _, folder := range folders {
		if info, err := os.Stat(folder); err == nil && folder != own {
			found = append(found, state{filepath.Base(folder), info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(found, func(a, b state) int { return int(min(1, max(-1, b.when-a.when))) })
	ids := make([]string, len(found))
	for i, f := range found {
		ids[i] = f.id
	}
	return ids
}

// resolve gives a local map without an ID the one that is made for it. A retry takes up the map of this task over these items that
// was used last, whatever its edition and options, since mending them is what it is for; it is a *starter.NothingToRetry when there is
// none. Otherwise the task's new edition makes a new map, and people are told.
func (a *app) resolve(m starter.Map) (string, error) {
	items := itemsOf(m)
	id := starter.Identify(m.Input, m.Scope, items, m.Edition)
	own, err := stateFolder("local", id)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(own); err == nil {
		return id, nil
	}
	if m.Retry {
		return retryable(filepath.Dir(own), m.Input.Task, starter.Fingerprint(m.Input, m.Scope, items))
	}
	for _, other := range earlier(m, id) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(own), other, "delivered", other)); err != nil {
			a.console.say("%s, or what it imports, has changed since map %s was stopped, so this is a new map; "+
				"to go on with that one: the same command with --id %s", m.Input.Task, other, other)
			break
		}
	}
	return id, nil
}

// itemsOf is the hash of a map's items when they lie in a file, else empty.
func itemsOf(m starter.Map) string {
	if m.Spooled == nil {
		return ""
	}
	return m.Spooled.Hash
}

// retryable is the ID of the local map of a fingerprint that was used last.
func retryable(root, task, fingerprint string) (string, error) {
	states, err := localStates(root)
	if err != nil {
		return "", unavailableError{err}
	}
	for _, s := range states {
		if s.Fingerprint == fingerprint && s.State != "half removed" {
			return s.ID, nil
		}
	}
	return "", usage("%v; a local map whose items all succeeded leaves nothing behind", &starter.NothingToRetry{Task: task})
}
