package starter

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/store"
)

// Map is one call of Start.
type Map struct {
	Input gpumux.MapInput
	// ID names the map. Default: made of its task, input and options, so that the same call finds the same map.
	ID string
	// Spooled are the items in a local file; Input then has no items, source and range of its own.
	Spooled *store.Spooled
	// Scope tells tasks of the same name apart in a made ID, such as the folder that a local task lies in.
	Scope string
	// Edition tells versions of a task's code apart in a made ID, so that a changed task is a new map.
	Edition string
	// Label says in words where the items come from, such as a file's name, for people who list maps.
	Label string
	// Inline keeps the map out of the store as long as its results are few and small: nothing of it is left to go on with.
	Inline bool
	// Retry runs again those items only that failed, of the newest map of this task over these items, whatever its other options
	// were: those given now count. Of a map that did not complete it runs those without a result. A *NothingToRetry says that there
	// is no such map.
	Retry bool
}

// maxID is the longest ID that fits the name of a folder with room for endings, in the store and in local state.
const maxID = 200

var unclean = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// identify hashes a map. The fingerprint is of what is mapped over what: task, scope and items. The ID is made of the fingerprint, of
// the options that change what items come to, and of the edition: the fingerprint leaves that out, so that a map can go on with another.
func (m *Map) identify() (id, fingerprint string) {
	in := m.Input
	what := struct {
		Task, Scope, Items, Source string
		Range                      *gpumux.Range
		Arg                        string   `json:",omitempty"`
		Columns                    []string `json:",omitempty"`
	}{in.Task, m.Scope, "", in.Source, in.Range, string(in.Arg), in.Columns}
	if m.Spooled != nil {
		what.Items = m.Spooled.Hash
		if m.Spooled.Values {
			what.Source = gpumux.ValuesOf("")
		}
	} else if in.Items != nil {
		lines := sha256.New()
		for _, item := range in.Items {
			lines.Write(item)
			lines.Write([]byte{'\n'})
		}
		what.Items = hex.EncodeToString(lines.Sum(nil))
	}
	fingerprint = digest(what)
	// Patience, window, chunk, priority and fairness only say where and how soon, backoff and maxFailures whether the map goes on, so they
	// are no part of the name.
	options := struct {
		Fingerprint string
		Ladder      []string
		Mode        gpumux.Mode
		Timeout     gpumux.Duration
		Attempts    int
		FailFast    bool
		Reduce      string `json:",omitempty"`
		Key         string `json:",omitempty"`
		WithItem    bool   `json:",omitempty"`
		Cache       bool   `json:",omitempty"`
	}{fingerprint, in.Rungs(), in.Mode, in.Timeout, max(1, in.Attempts), in.FailFast, in.Reduce, in.Key, in.WithItem, in.Cache}
	id = clean(in.Task) + "-" + digest(options)[:12]
	if m.Edition != "" {
		id += "-" + m.Edition
	}
	return id, fingerprint
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
	name := cmp.Or(strings.Trim(unclean.ReplaceAllString(task, "-"), "-."), "map")
	return name[:min(len(name), 60)]
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
	return path.Join("maps", id, hex.EncodeToString(b[:]), contract.ArraysOutput)
}

// MadeID is the ID that Start gives to the map when it has none.
func (m *Map) MadeID() string {
	id, _ := m.identify()
	return id
}

// Fingerprint tells what is mapped over what, whatever the other options: maps of the same one are retried by each other's commands.
func (m *Map) Fingerprint() string {
	_, fingerprint := m.identify()
	return fingerprint
}

// validate returns an error for any mistake in the map's input.
func (m *Map) validate() error {
	given := m.Input
	if m.Spooled != nil {
		if m.Input.Len() != 0 || m.Input.Items != nil {
			return errors.New("start map: give either Spooled or Input's items, source or range")
		}
		if err := m.CheckKey(); err != nil {
			return &gpumux.InputError{Problems: []gpumux.Problem{{Field: "key", Message: err.Error()}}}
		}
		given.Range, given.Key = &gpumux.Range{}, "" // stands for the items, which are known to be good
	}
	return given.Validate()
}

// CheckKey returns why the key cannot be a field of the items, as far as that is known here.
func (m *Map) CheckKey() error {
	if m.Input.Key == "" || m.Spooled == nil || m.Spooled.Items == 0 {
		return nil
	}
	first, err := m.Spooled.First()
	if err != nil {
		return err
	}
	return text.CheckField(first, m.Input.Key)
}

// length is the number of items, or -1 when only the workers can tell.
func (m *Map) length() int64 {
	if m.Spooled != nil {
		return m.Spooled.Items
	}
	return m.Input.Len()
}

// large reports whether the items cannot travel inside the workflow's input: for their number, as values of a results file, or because
// they are to be found again.
func (m *Map) large() bool {
	return m.Spooled != nil && (m.Spooled.Values || m.Input.Cache || m.Spooled.Items > gpumux.InlineItems || m.Spooled.Bytes > gpumux.InlineBytes)
}

// manyResults reports whether the results will not fit a summary, so that the workers' store takes them in any case.
func (m *Map) manyResults() bool { return m.length() < 0 || m.length() > gpumux.InlineItems }

// place puts the items where the workflow finds them and returns the URL of the store that takes the results, or "" when they
// are to travel in the summary.
func (s *Starter) place(ctx context.Context, m *Map) (string, error) {
	var st *store.Store
	var noStore error
	if !m.Inline || m.large() {
		st, noStore = s.store(ctx)
	}
	if noStore != nil && m.large() {
		return "", fmt.Errorf("%d items (%s) of this map go through the workers' store: %w",
			m.Spooled.Items, gpumux.Size(m.Spooled.Bytes), noStore)
	}
	switch {
	case m.Spooled == nil:
	case m.Spooled.Items == 0:
		m.Input.Range, m.Input.Key = &gpumux.Range{}, "" // no result lacks it
	case m.large():
		src, err := st.PutSource(ctx, m.Spooled)
		if err != nil {
			return "", fmt.Errorf("put the items into store %s: %w", st.URL(), err)
		}
		if m.Input.Source = src.URL; m.Spooled.Values {
			m.Input.Source = gpumux.ValuesOf(src.URL)
		}
	default:
		items, err := m.Spooled.All()
		if err != nil {
			return "", fmt.Errorf("read the items back: %w", err)
		}
		m.Input.Items = items
	}
	if st == nil {
		return "", nil
	}
	return st.URL(), nil
}

// summaryLine is the map in one line, for the Web UI's lists.
func summaryLine(note memo) string {
	if note.Items < 0 {
		return text.Plain(note.Task)
	}
	return fmt.Sprintf("%s over %s items", text.Plain(note.Task), humanize.Comma(note.Items))
}

// detailLines describe the map in Markdown for the Web UI.
func detailLines(in gpumux.MapInput, note memo) string {
	var b strings.Builder
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "- %s: %s\n", name, text)
		}
	}
	line("task", text.Plain(note.Task))
	line("pools", text.Plain(strings.Join(in.Rungs(), ", then ")))
	if note.Items >= 0 {
		line("items", humanize.Comma(note.Items))
	}
	line("input", text.Plain(note.Input))
	line("mode", text.Plain(string(in.Mode)))
	if in.Timeout > 0 {
		line("timeout per item", in.Timeout.String())
	}
	if in.Attempts > 1 {
		line("attempts per item", strconv.Itoa(in.Attempts))
	}
	if in.Backoff > 0 {
		line("pause before another attempt", in.Backoff.String())
	}
	if in.FailFast {
		b.WriteString("- stops at the first failed item\n")
	}
	line("stops when more have failed than", string(in.MaxFailures))
	line("reduce", text.Plain(in.Reduce))
	line("columns", text.Plain(strings.Join(in.Columns, ", ")))
	line("key", text.Plain(in.Key))
	if note.Output != "" {
		line("results", text.Plain(note.Output)+" in "+text.Plain(note.Store))
	}
	return b.String()
}
