package starter

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/results"
)

// Cause is failures of one kind and task that differ only in numbers and quoted values.
type Cause struct {
	Kind  gpumux.FaultKind `json:"kind"`
	Count int64            `json:"count"`
	// Example is the first of them.
	Example gpumux.Result `json:"example"`
	// Places count them by where they failed, where faults tell: "gpu on GPU-5c89 of n1".
	Places map[string]int64 `json:"places,omitempty"`
}

// Causes groups failures by cause: the first 200 causes.
type Causes struct {
	// Count is how many failures there are, those of further causes too.
	Count int64

	groups map[string]*Cause
	order  []*Cause
}

const (
	// maxCauses bounds how many causes are told apart.
	maxCauses = 200
	// maxPlaces bounds how many devices are told apart in a cause.
	maxPlaces = 32
)

// Add counts a result; one that succeeded is left out.
func (g *Causes) Add(r gpumux.Result) {
	if r.Fault == nil {
		return
	}
	g.Count++
	key := causeOf(r.Fault)
	if group := g.groups[key]; group != nil {
		group.Count++
		group.at(r.Fault)
		return
	}
	if len(g.order) == maxCauses {
		return
	}
	if g.groups == nil {
		g.groups = map[string]*Cause{}
	}
	group := &Cause{Kind: r.Fault.Kind, Count: 1, Example: r, Places: map[string]int64{}}
	group.at(r.Fault)
	g.groups[key], g.order = group, append(g.order, group)
}

func (c *Cause) at(f *gpumux.Fault) {
	pool, _, _ := strings.Cut(f.Slot, "/")
	place := fmt.Sprintf("%s on %s of %s", pool, f.Device, f.Host)
	if _, known := c.Places[place]; pool != "" && (known || len(c.Places) < maxPlaces) {
		c.Places[place]++
	}
}

// Sorted are the causes, the most frequent first.
func (g *Causes) Sorted() []Cause {
	sorted := make([]Cause, len(g.order))
	for i, group := range g.order {
		sorted[i] = *group
	}
	slices.SortStableFunc(sorted, func(a, b Cause) int { return cmp.Compare(b.Count, a.Count) })
	return sorted
}

// AddLine is Add of a line of a results file.
func (g *Causes) AddLine(line []byte) error {
	if outcome, err := results.ParseOutcome(line); err != nil || outcome.Kind == "" {
		return nil
	}
	var result gpumux.Result
	if err := json.Unmarshal(line, &result); err != nil {
		return fmt.Errorf("read a result: %w", err)
	}
	g.Add(result)
	return nil
}

// varying matches quoted values, addresses, long hexadecimal names and numbers.
var varying = regexp.MustCompile("'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|\\b0x[0-9a-fA-F]+\\b|\\b[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}\\b|[0-9]+(?:[.,:][0-9]+)*")

// causeOf is the key of a fault's cause: equal for faults that are alike.
func causeOf(f *gpumux.Fault) string {
	const limit = 300 // the beginning of a long message says what it is about
	message, _, _ := strings.Cut(f.Message, "\n")
	message = varying.ReplaceAllString(message[:min(len(message), limit)], "#")
	return strings.Join([]string{string(f.Kind), f.Task, f.Op, f.Class, varying.ReplaceAllString(f.Exit, "#"), message}, "\x00")
}
