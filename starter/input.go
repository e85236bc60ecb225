package starter

import (
	"context"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/store"
)

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
		return "", fmt.Errorf("%d items (%s) are more than travel inline, so they need the workers' store: %w",
			m.Spooled.Items, gpumux.Size(m.Spooled.Bytes), noStore)
	}
	switch {
	case m.Spooled == nil:
	case m.Spooled.Items == 0:
		m.Input.Range = &gpumux.Range{}
	case m.large():
		src, err := st.PutSource(ctx, m.Spooled)
		if err != nil {
			return "", fmt.Errorf("put the items into store %s: %w", st.URL(), err)
		}
		m.Input.Source = src.URL
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
		return gpumux.Plain(note.Task)
	}
	return fmt.Sprintf("%s over %s items", gpumux.Plain(note.Task), humanize.Comma(note.Items))
}

// detailLines describe the map in Markdown for the Web UI.
func detailLines(in gpumux.MapInput, note memo) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- task: %s\n- pools: %s\n", gpumux.Plain(note.Task), gpumux.Plain(strings.Join(in.Rungs(), ", then ")))
	if note.Items >= 0 {
		fmt.Fprintf(&b, "- items: %s\n", humanize.Comma(note.Items))
	}
	if note.Input != "" {
		fmt.Fprintf(&b, "- input: %s\n", gpumux.Plain(note.Input))
	}
	if in.Mode != "" {
		fmt.Fprintf(&b, "- mode: %s\n", gpumux.Plain(string(in.Mode)))
	}
	if in.Timeout > 0 {
		fmt.Fprintf(&b, "- timeout per item: %s\n", in.Timeout)
	}
	if in.Attempts > 1 {
		fmt.Fprintf(&b, "- attempts per item: %d\n", in.Attempts)
	}
	if in.FailFast {
		b.WriteString("- stops at the first failed item\n")
	}
	if in.Reduce != "" {
		fmt.Fprintf(&b, "- reduce: %s\n", gpumux.Plain(in.Reduce))
	}
	if note.Output != "" {
		fmt.Fprintf(&b, "- results: %s in %s\n", gpumux.Plain(note.Output), gpumux.Plain(note.Store))
	}
	return b.String()
}
