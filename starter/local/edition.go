package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpumux/gpumux/starter"
)

// resolve gives a map without an ID the one that is made for it. A retry takes up the map of this task over these items that was used
// last, whatever its edition and options, since mending them is what it is for; it is a mistake when there is none. Otherwise the
// task's new edition makes a new map, and people are told.
func (o *Options) resolve(m starter.Map) (string, error) {
	id, fingerprint := m.Identify()
	root, err := Folder("local")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(root, id)); err == nil {
		return id, nil
	}
	if m.Retry {
		return retryable(m.Input.Task, fingerprint)
	}
	if other, ok := earlier(root, id, m.Edition); ok {
		o.Say(fmt.Sprintf("%s, or what it imports, has changed since map %s was stopped, so this is a new map; "+
			"to go on with that one, put the code back as it was and give the same command", m.Input.Task, other))
	}
	return id, nil
}

// earlier is the newest map of the same task, input and options that was stopped while its task had another edition.
func earlier(root, id, edition string) (newest string, found bool) {
	base, ok := strings.CutSuffix(id, "-"+edition)
	if !ok || edition == "" {
		return "", false
	}
	folders, err := filepath.Glob(filepath.Join(root, base+"-??????"))
	if err != nil {
		return "", false
	}
	var changed int64
	for _, folder := range folders {
		other := filepath.Base(folder)
		info, err := os.Stat(folder)
		if err != nil || other == id || info.ModTime().UnixNano() < changed {
			continue
		}
		if _, err := os.Stat(filepath.Join(folder, "delivered", other)); err != nil {
			newest, changed, found = other, info.ModTime().UnixNano(), true
		}
	}
	return newest, found
}

// retryable is the ID of the local map of a fingerprint that was used last.
func retryable(task, fingerprint string) (string, error) {
	states, err := States()
	if err != nil {
		return "", err
	}
	for _, s := range states {
		if s.Fingerprint == fingerprint && s.State != halfRemoved {
			return s.ID, nil
		}
	}
	return "", mistake("%v; a local map whose items all succeeded leaves nothing behind", &starter.NothingToRetryError{Task: task})
}
