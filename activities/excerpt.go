package activities

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/results"
)

// shortText is how many bytes of what an item printed travel in a history, and of its
// traceback. Messages are short.
const shortText = 1000

func excerpt(r gpumux.Result, where string) (short gpumux.Result, cut bool) {
	end := func(s string) string {
		if len(s) <= shortText {
			return s
		}
		cut = true
		return fmt.Sprintf("[the last %d of %d bytes%s]\n", shortText, len(s), where) + strings.ToValidUTF8(s[len(s)-shortText:], "")
	}
	if r.Printed = end(r.Printed); r.Fault == nil {
		return r, cut
	}
	fault := *r.Fault
	fault.Traceback, fault.Tail = end(fault.Traceback), end(fault.Tail)
	r.Fault = &fault
	return r, cut
}

// shorten makes excerpts of results that travel in a history, and stores the whole of
// those.
func (a *attempt) shorten(ctx context.Context, all []gpumux.Result) {
	var whole []byte
	var cut []int
	for i, r := range all {
		if _, long := excerpt(r, ""); !long {
			continue
		}
		line, err := results.Append(nil, r)
		if err != nil {
			a.log.Warn("a result cannot be stored whole", "item", r.Index, "error", err)
		}
		whole, cut = append(whole, line...), append(cut, i)
	}
	if cut == nil {
		return
	}
	info := activity.GetInfo(ctx)
	key := contract.WholeOf(info.WorkflowExecution.ID, info.WorkflowExecution.RunID, info.ActivityID)
	where := "; the whole result is in " + a.Store.Objects.Locate(key)
	storing, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	if err := a.Store.Objects.Put(storing, key, whole, objects.Creation{}); err != nil {
		a.log.Warn("results that are too long for a workflow's history could not be stored whole", "items", len(cut), "error", err)
		where = "; the store did not take the rest"
	}
	for _, i := range cut {
		all[i], _ = excerpt(all[i], where)
	}
}
