package starter

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/gpumux/gpumux"
)

// maxID is the longest ID that fits the name of a folder with room for endings, in the store and in local state.
const maxID = 200

var unclean = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// identity tells maps apart.
type identity struct {
	// fingerprint is of what is mapped over what: task, scope and items.
	fingerprint string
	// id is made of the fingerprint and of the options that change what items come to.
	id string
}

// identify hashes a map.
func (m *Map) identify() identity {
	in := m.Input
	what := struct {
		Task, Scope, Items, Source string
		Range                      *gpumux.Range
	}{in.Task, m.Scope, "", in.Source, in.Range}
	if m.Spooled != nil {
		what.Items = m.Spooled.Hash
	} else if in.Items != nil {
		lines := sha256.New()
		for _, item := range in.Items {
			lines.Write(item)
			lines.Write([]byte{'\n'})
		}
		what.Items = hex.EncodeToString(lines.Sum(nil))
	}
	print := digest(what)
	// Window, chunk, priority and fairness only say how soon, so they are no part of the name.
	options := struct {
		Fingerprint string
		Ladder      []string
		Mode        gpumux.Mode
		Timeout     gpumux.Duration
		Attempts    int
		FailFast    bool
		Reduce      string `json:",omitempty"`
	}{print, in.Rungs(), in.Mode, in.Timeout, max(1, in.Attempts), in.FailFast, in.Reduce}
	return identity{fingerprint: print, id: clean(in.Task) + "-" + digest(options)[:12]}
}

func digest(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // only strings and numbers come here
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:32]
}

// clean makes a name of a task that is also good in file names and keys.
func clean(task string) string {
	name := strings.Trim(unclean.ReplaceAllString(task, "-"), "-.")
	if name == "" {
		name = "map"
	}
	if len(name) > 60 {
		name = name[:60]
	}
	return name
}

// CheckID says what is wrong with an ID that a caller chose, or nil.
func CheckID(id string) error {
	if id == "" || len(id) > maxID || unclean.MatchString(id) || strings.Trim(id, ".") == "" {
		return fmt.Errorf("map ID %.80q: use 1 to %d ASCII letters, digits, dots, dashes and underscores", id, maxID)
	}
	return nil
}

// newOutput makes up the key of a results file that no other run writes; its parts lie in the same folder.
func newOutput(id string) string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return path.Join("maps", id, hex.EncodeToString(b[:]), "results.jsonl")
}

// MadeID is the ID that Start gives to the map when it has none.
func (m *Map) MadeID() string { return m.identify().of(m.Edition) }

// Fingerprint tells what is mapped over what, whatever the other options: maps of the same one are retried by each other's commands.
func (m *Map) Fingerprint() string { return m.identify().fingerprint }

// of is the ID for an edition of the task. The fingerprint is the same for all, so that a map can go on with another.
func (who identity) of(edition string) string {
	if edition == "" {
		return who.id
	}
	return who.id + "-" + edition
}
