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

const (
	// keepAfter is how long after a result a chunk without a folder keeps what has finished,
	// keepEvery the least pause between two times. A killed worker loses what is younger,
	// and a shorter chunk keeps nothing.
	keepAfter = 250 * time.Millisecond
	keepEvery = 2 * time.Second
	keepLimit = 10 * time.Second
)

// keeping keeps in the store what finishes of a chunk without a folder, until stopped.
// The next attempt at the chunk, on any worker, finds it.
func (a *attempt) keeping() (stop func()) {
	if a.stream != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(a.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for last := (time.Time{}); ; last = time.Now() {
			select {
			case <-a.news:
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(max(keepAfter, keepEvery-time.Since(last))):
			case <-ctx.Done():
				return
			}
			a.keep(ctx)
		}
	}()
	return func() { cancel(); <-done }
}

func (a *attempt) noteNews() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

func (a *attempt) keep(ctx context.Context) {
	results := a.ledger.inlined()
	if len(results) == a.kept {
		return
	}
	text, err := json.Marshal(results)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, keepLimit)
		defer cancel()
		a.keeps = true
		err = a.Store.Objects.Put(ctx, keptOf(a.ctx), text, objects.Creation{})
	}
	switch {
	case err == nil:
		a.kept = len(results)
	case ctx.Err() == nil:
		a.log.Warn("finished results could not be kept; if this worker is lost they run again", "error", err)
		a.noteNews()
	}
}

func (a *attempt) findKept() (results []gpumux.Result, err error) {
	if a.chunk.Parts != "" || activity.GetInfo(a.ctx).Attempt == 1 {
		return nil, nil
	}
	text, err := a.Store.Objects.ReadAll(a.ctx, keptOf(a.ctx), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &results)
	}
	if err != nil {
		return nil, fmt.Errorf("read what an earlier attempt kept: %w", err)
	}
	a.kept, a.keeps = len(results), true
	return results, nil
}

// forget deletes what was kept, as the results are about to be reported. Of an activity
// that was ended another attempt may need it.
func (a *attempt) forget() {
	if !a.keeps || a.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(a.ctx, keepLimit)
	defer cancel()
	if err := a.Store.Objects.Delete(ctx, keptOf(a.ctx)); err != nil {
		a.log.Warn("results that were kept for a while could not be deleted; gpumux prune does it", "error", err)
	}
}

func keptOf(ctx context.Context) string {
	info := activity.GetInfo(ctx)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", info.Namespace, info.WorkflowExecution.ID, info.WorkflowExecution.RunID, info.ActivityID))
	return fmt.Sprintf("maps/unreported/%x.json", sum[:16])
}

func (l *ledger) resume(kept []gpumux.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results = kept
	for _, r := range kept {
		l.count(r)
		l.bytes += weight(r)
	}
}

func (l *ledger) inlined() []gpumux.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.results
}
