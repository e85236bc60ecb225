package starter

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/text"
)

// Map is one call of Start.
type Map struct {
	Input gpumux.MapInput
	// ID names the map. Default: made of its task, input and options.
	ID string
	// Spooled are the items in a local file; Input then has none.
	Spooled *Spooled
	// Scope tells tasks of one name apart, such as the folder of a local task.
	Scope string
	// Edition tells versions of a task's code apart in a made ID. Of stages it joins theirs
	// with dashes, and the first counts: what has other code in later stages goes on with
	// the values of those before.
	Edition string
	// ArgFile is a file of this host that stands for Input's argument, which then has its
	// name in Input.ArgFile.
	ArgFile string
	// Label says in words where the items come from.
	Label string
	// Retry runs the failed items again, of the newest map of this task over these items;
	// the options given now count. Of an incomplete map it runs those without a result. A
	// *RefusedError says that there is no such map.
	Retry bool
}

// Spooled is an input in a temporary file, checked and indexed.
type Spooled items.Spooled

// Spool copies an input of any size into a temporary file and checks each item. The end
// of its name tells the format: .jsonl, .csv or .tsv, with .gz or .zst behind it when
// compressed. Mistakes in the input are a *gpumux.SourceError with file and line.
func Spool(r io.Reader, name string) (*Spooled, error) {
	format, err := items.FormatOf(name)
	if err != nil {
		return nil, err
	}
	spooled, err := items.SpoolReader(r, name, format)
	return (*Spooled)(spooled), err
}

// Remove deletes the temporary files. It may be called again.
func (s *Spooled) Remove() error { return (*items.Spooled)(s).Remove() }

// maxID leaves room for endings in the name of a folder.
const maxID = 200

var unclean = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// Identify hashes a map. The fingerprint is of task, scope and items. The ID, which Start
// gives to a map without one, also has the options that change results, and the edition.
func (m *Map) Identify() (id, fingerprint string) {
	in := m.Input
	what := struct {
		Task, Scope, Items, Source string
		Range                      *gpumux.Range
		Arg, ArgFile               string   `json:",omitempty"`
		Columns                    []string `json:",omitempty"`
		Stages                     []string `json:",omitempty"`
	}{in.Task, m.Scope, "", in.Source, in.Range, string(in.Arg), in.ArgFile, in.Columns, nil}
	for _, stage := range in.Stages {
		what.Stages = append(what.Stages, strings.TrimSpace(stage.Task+" "+string(stage.Arg)))
	}
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
	fingerprint = digest(what)
	// Patience, deadlines, window, chunk, priority and fairness only say where and how soon,
	// backoff and maxFailures whether the map goes on, so they are no part of the name.
	options := struct {
		Fingerprint string
		Ladder      []string
		Mode        gpumux.Mode
		Timeout     string
		Attempts    int
		RetryOn     []string       `json:",omitempty"`
		Key         string         `json:",omitempty"`
		WithItem    bool           `json:",omitempty"`
		Stages      []gpumux.Stage `json:",omitempty"`
	}{fingerprint, in.Rungs(), in.Mode, in.Timeout.String(), max(1, in.Attempts), in.RetryOn, in.Key, in.WithItem, nil}
	edition := m.Edition
	for _, s := range in.Stages {
		options.Stages = append(options.Stages, gpumux.Stage{Ladder: s.Ladder, Mode: s.Mode, Timeout: s.Timeout, Attempts: s.Attempts, RetryOn: s.RetryOn})
		edition, _, _ = strings.Cut(m.Edition, "-")
	}
	id = clean(in.Name()) + "-" + digest(options)[:12]
	if edition != "" {
		id += "-" + edition
	}
	return id, fingerprint
}

// changed is the first stage whose code is of another edition than in began, the edition
// of a run. It is -1 where none is, or that is not known.
func (m *Map) changed(began string) int {
	if began == "" || m.Edition == "" || began == m.Edition {
		return -1
	}
	old := strings.Split(began, "-")
	for i, edition := range strings.Split(m.Edition, "-") {
		if m.Input.Stages == nil || i >= len(old) || edition != old[i] {
			return i
		}
	}
	return -1
}

func digest(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // only strings and numbers come here
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:32]
}

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

// newOutput makes up the key of a results file that no other run writes.
func newOutput(id string) string {
	return path.Join("maps", id, strings.ToLower(rand.Text()[:8]), contract.ArraysOutput)
}

func (m *Map) validate() error {
	checked := m.Input
	if m.Spooled != nil {
		if m.Input.Len() != 0 || m.Input.Items != nil {
			return errors.New("start map: give either Spooled or Input's items, source or range")
		}
		if err := m.CheckKey(); err != nil {
			return &gpumux.InputError{Problems: []gpumux.Problem{{Field: "key", Message: err.Error()}}}
		}
		checked.Range, checked.Key = &gpumux.Range{}, "" // stands for the items, which are known to be good
	}
	if n := len(checked.Arg); n > gpumux.MaxArgFile {
		return &gpumux.InputError{Problems: []gpumux.Problem{{Field: "arg", Message: fmt.Sprintf("has %s, more than %s", gpumux.Size(n), gpumux.Size(gpumux.MaxArgFile))}}}
	} else if n > gpumux.MaxArg {
		checked.Arg = nil // Start puts it in the store
	}
	return checked.Validate()
}

// CheckKey returns why the key cannot be a field of the items, if that is known here.
func (m *Map) CheckKey() error {
	if m.Input.Key == "" || m.Spooled == nil || m.Spooled.Items == 0 {
		return nil
	}
	first, err := (*items.Spooled)(m.Spooled).First()
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

// large reports whether the items are too many to travel inside the workflow's input.
func (m *Map) large() bool {
	return m.Spooled != nil && (m.Spooled.Items > gpumux.InlineItems || m.Spooled.Bytes > gpumux.InlineBytes)
}

func summaryLine(note memo) string {
	if note.Items < 0 {
		return text.Plain(note.Task)
	}
	return fmt.Sprintf("%s over %s items", text.Plain(note.Task), humanize.Comma(note.Items))
}

// detailLines say in Markdown what the Web UI does not show as the map's input.
func detailLines(in gpumux.MapInput, note memo) string {
	return "- pools: " + strings.Join(in.Pools(), ", then ") + "\n" + text.When(note.Input != "", "- input: %s\n", text.Plain(note.Input)) +
		text.When(note.Output != "", "- results: %s in %s\n", text.Plain(note.Output), text.Plain(note.Store))
}

// note is the memo of a new run of the map, after the last one that it goes on from.
func (m *Map) note(fingerprint, id, storeURL string, entry Entry, last *run) memo {
	note := memo{Fingerprint: fingerprint, Task: m.Input.Name(), Items: m.length(), Input: m.Label, Store: storeURL, Edition: m.Edition}
	switch {
	case entry == EntryContinued && last.Memo.Output != "":
		note.Output, note.Store = last.Memo.Output, cmp.Or(storeURL, last.Memo.Store)
	default:
		note.Output = newOutput(id) // a key, which the workers find even when their store is out of reach from here
	}
	if entry == EntryContinued && last.Memo.Edition != "" {
		note.Edition = last.Memo.Edition // of the results that it has
	}
	return note
}
