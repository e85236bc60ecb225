package starter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
)

// Cause is failures that are alike: of one kind, with messages that differ in numbers, addresses and quoted values at most.
type Cause struct {
	Count int64 `json:"count"`
	// Example is the first of them.
	Example gpumux.Result `json:"example"`
}

// Causes groups failures. The zero value is ready. It holds no more than mostCauses of them.
type Causes struct {
	groups map[string]*Cause
	order  []*Cause
	// Others counts the failures of further causes.
	Others int64
}

// mostCauses bounds how many causes are told apart.
const mostCauses = 200

// Add counts a result; one that succeeded is left out.
func (c *Causes) Add(r gpumux.Result) {
	if r.Fault == nil {
		return
	}
	key := causeOf(r.Fault)
	if group := c.groups[key]; group != nil {
		group.Count++
		return
	}
	if len(c.order) == mostCauses {
		c.Others++
		return
	}
	if c.groups == nil {
		c.groups = map[string]*Cause{}
	}
	group := &Cause{Count: 1, Example: r}
	c.groups[key], c.order = group, append(c.order, group)
}

// Most are the causes, the most frequent first.
func (c *Causes) Most() []Cause {
	sorted := make([]Cause, len(c.order))
	for i, group := range c.order {
		sorted[i] = *group
	}
	slices.SortStableFunc(sorted, func(a, b Cause) int { return cmp.Compare(b.Count, a.Count) })
	return sorted
}

// AddLine is Add of a line of a results file.
func (c *Causes) AddLine(line []byte) error {
	var result gpumux.Result
	if err := json.Unmarshal(line, &result); err != nil {
		return fmt.Errorf("read a result: %w", err)
	}
	c.Add(result)
	return nil
}

// varying is what differs between messages that say the same: quoted values, addresses and long names in hexadecimal, numbers.
var varying = regexp.MustCompile("'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|\\b0x[0-9a-fA-F]+\\b|\\b[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}\\b|[0-9]+(?:[.,:][0-9]+)*")

// causeOf is the same for faults that are alike.
func causeOf(f *gpumux.Fault) string {
	const most = 300 // of a long message the beginning says what it is about
	message, _, _ := strings.Cut(f.Message, "\n")
	message = varying.ReplaceAllString(message[:min(len(message), most)], "#")
	return strings.Join([]string{string(f.Kind), f.Op, f.Class, varying.ReplaceAllString(f.Exit, "#"), message}, "\x00")
}

// Causes groups the failures of a completed map. When ctx ends before all results were read, they are of the first ones, and whole is
// false.
func (s *Starter) Causes(ctx context.Context, summary gpumux.Summary) (causes Causes, whole bool, err error) {
	if summary.Failed == 0 {
		return causes, true, nil
	}
	left := summary.Failed
	for result, err := range s.ResultsOf(ctx, summary) {
		switch {
		case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return causes, false, nil
		case err != nil:
			return causes, false, err
		}
		if result.Fault == nil {
			continue
		}
		causes.Add(result)
		if left--; left == 0 {
			break
		}
	}
	return causes, true, nil
}
