package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/edition"
)

// whole is the edition of the task and of its reduce, where that is a task, too.
func (t localTask) whole() string {
	if t.reduce == nil {
		return t.edition
	}
	return edition.Join(t.edition, t.reduce.edition)
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

// resolve gives a local map without an ID the one that is made for it. A retry takes up the newest map of an earlier edition,
// since mending the task is what it is for; otherwise the task's new edition makes a new map, and people are told.
func (a *app) resolve(m starter.Map) string {
	items := ""
	if m.Spooled != nil {
		items = m.Spooled.Hash
	}
	id := starter.Identify(m.Input, m.Scope, items, m.Edition)
	own, err := stateFolder("local", id)
	if err != nil {
		return id
	}
	if _, err := os.Stat(own); err == nil {
		return id
	}
	for _, other := range earlier(m, id) {
		if m.Retry {
			return other
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(own), other, "delivered", other)); err != nil {
			a.console.say("%s, or what it imports, has changed since map %s was stopped, so this is a new map; "+
				"to go on with that one, put the code back as it was and give the same command", m.Input.Task, other)
			break
		}
	}
	return id
}
