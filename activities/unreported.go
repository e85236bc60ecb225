package activities

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/objects"
)

// keepUnreported stores the results that the server may not know while it does not
// answer: the next attempt at the chunk, on any worker, finds them.
func (a *attempt) keepUnreported(ctx context.Context) {
	if a.stream != nil || !a.doubts() {
		return
	}
	results := a.ledger.snapshot("").Results
	if len(results) == a.kept {
		return
	}
	text, err := json.Marshal(results)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = a.Store.Objects.Put(ctx, unreportedOf(a.ctx), text, objects.Creation{})
	}
	if err != nil {
		a.log.Warn("results that the server does not know yet could not be stored; they may run again", "error", err)
		return
	}
	a.kept = len(results)
}

// findUnreported adds what an earlier attempt kept to the memo that it left.
func (a *attempt) findUnreported(m *memo) error {
	if a.chunk.Parts != "" || activity.GetInfo(a.ctx).Attempt == 1 && !a.doubts() {
		return nil
	}
	text, err := a.Store.Objects.ReadAll(a.ctx, unreportedOf(a.ctx))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var kept []gpumux.Result
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil {
		return fmt.Errorf("read what an earlier attempt kept: %w", err)
	}
	known := map[int64]bool{}
	for _, r := range m.Results {
		known[r.Index] = true
	}
	for _, r := range kept {
		if !known[r.Index] {
			m.Results = append(m.Results, r)
		}
	}
	return nil
}

// unreportedOf is the key of the results that an activity's attempts keep for the next.
func unreportedOf(ctx context.Context) string {
	info := activity.GetInfo(ctx)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", info.Namespace, info.WorkflowExecution.ID, info.WorkflowExecution.RunID, info.ActivityID))
	return fmt.Sprintf("maps/unreported/%x.json", sum[:16])
}
