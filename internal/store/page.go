package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/text"
)

// largestPaged is the most bytes of a result that travels in a page.
const largestPaged = 1 << 20

// Page reads results of a results file in one read, at most gpumux.InlineBytes of them
// but at least one. Any other file is a *gpumux.SourceError.
func (s *Store) Page(ctx context.Context, in contract.PageInput) (page contract.Page, err error) {
	o, err := s.Objects.Read(ctx, in.Output, in.From, largestPaged)
	if err != nil {
		return page, err
	}
	defer o.Close()
	at, size := in.From, 0
	for line, err := range results.Lines(o) {
		if err != nil {
			return page, err
		}
		if !bytes.HasSuffix(line, []byte{'\n'}) && at+int64(len(line)) < o.Size() {
			break // the next page has it whole
		}
		r, err := results.Parse(line)
		if _, bad := results.ParseOutcome(line); err != nil || bad != nil {
			return page, &gpumux.SourceError{Name: o.URL(), Problem: fmt.Sprintf("at byte %d is no line of results", at), Text: text.Beginning(bytes.TrimSpace(line)),
				Hint: "name the results file of a map, in JSON lines and not compressed, and 0 or the position that the page before gave"}
		}
		if size += r.Weight(); size > largestPaged || size > gpumux.InlineBytes && len(page.Results) > 0 {
			break
		}
		page.Results = append(page.Results, r)
		if at += int64(len(line)); len(page.Results) == in.Limit {
			break
		}
	}
	if at < o.Size() && len(page.Results) == 0 {
		return page, &gpumux.SourceError{Name: o.URL(), Problem: fmt.Sprintf("the result at byte %d has more than %s", at, gpumux.Size(largestPaged)),
			Hint: "read the file itself, or map over it with gpumux.ValuesOf"}
	}
	if at < o.Size() {
		page.Next = at
	}
	return page, nil
}
