package activities

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/store"
)

// Light serves the queue gpumux: what a map needs besides slots.
type Light struct {
	Store *store.Store
	// Describe is what this worker says of itself now.
	Describe func() gpumux.Describe
}

// Register registers the light activities.
func (l *Light) Register(r worker.ActivityRegistry) {
	for name, f := range map[string]any{
		gpumux.IndexSource: l.IndexSource, gpumux.FindParts: l.FindParts, gpumux.MergeParts: l.MergeParts,
		gpumux.WritePart: l.WritePart, gpumux.Reduce: l.Reduce,
	} {
		r.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
	l.RegisterDescribe(r)
}

// RegisterDescribe registers DescribeWorker alone, for a queue of one worker.
func (l *Light) RegisterDescribe(r worker.ActivityRegistry) {
	r.RegisterActivityWithOptions(l.DescribeWorker, activity.RegisterOptions{Name: gpumux.DescribeWorker})
}

// alive heartbeats until stopped.
func alive(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				activity.RecordHeartbeat(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	return cancel
}

// IndexSource finds where the items of a source begin and how many there are. Mistakes in the file end the map.
func (l *Light) IndexSource(ctx context.Context, in gpumux.IndexInput) (gpumux.Source, error) {
	defer alive(ctx)()
	source, err := l.Store.Source(ctx, in.Source, in.Index)
	if errors.Is(err, fs.ErrNotExist) {
		return source, badInput(err, "put the file there, or correct the source")
	}
	return source, hopeless(err)
}

// hopeless makes an error final when trying again cannot help: mistakes in a file or a name.
func hopeless(err error) error {
	var file *store.SourceError
	var name *store.NameError
	if errors.As(err, &file) || errors.As(err, &name) || errors.Is(err, syscall.ENAMETOOLONG) {
		return badInput(err, "")
	}
	return err
}

// FindParts tells which items have a stored result.
func (l *Light) FindParts(ctx context.Context, in gpumux.PartsInput) (gpumux.Found, error) {
	defer alive(ctx)()
	found, err := l.Store.Find(ctx, in.Parts)
	return found, hopeless(err)
}

// MergeParts writes the results file.
func (l *Light) MergeParts(ctx context.Context, in gpumux.MergeInput) (gpumux.Merged, error) {
	defer alive(ctx)()
	merged, err := l.Store.Merge(ctx, in, nil)
	return merged, hopeless(err)
}

// WritePart stores results that became too many for the history. Doing it twice stores the same results twice, which merging
// takes as one.
func (l *Light) WritePart(ctx context.Context, in gpumux.PartInput) error {
	if len(in.Results) == 0 {
		return nil
	}
	defer alive(ctx)()
	first, last := in.Results[0].Index, in.Results[len(in.Results)-1].Index
	if err := l.Store.WritePart(ctx, in.Parts, first, last+1, 0, in.Results); err != nil {
		return fmt.Errorf("store results %d to %d: %w", first, last, err)
	}
	return nil
}

// DescribeWorker says what this worker offers.
func (l *Light) DescribeWorker(context.Context) (gpumux.Describe, error) { return l.Describe(), nil }
