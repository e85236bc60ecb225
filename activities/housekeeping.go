package activities

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/columns"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/text"
)

// Housekeeping serves the queue gpumux: what a map needs besides slots.
type Housekeeping struct {
	Store *store.Store
	// Describe describes this worker now, Edition the code of a task.
	Describe func() contract.WorkerInfo
	Edition  func(task string) (string, error)
}

// Register registers the activities of the queue.
func (l *Housekeeping) Register(r worker.ActivityRegistry) {
	for name, f := range map[string]any{
		contract.IndexSource: checked(l.indexSource), contract.FindParts: checked(l.findParts), contract.MergeParts: checked(l.mergeParts),
		contract.WriteList: checked(l.writeList), contract.ReadPage: checked(l.readPage),
	} {
		r.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
	l.RegisterDescribe(r)
}

// RegisterDescribe registers what clients ask one worker, for a queue of its own.
func (l *Housekeeping) RegisterDescribe(r worker.ActivityRegistry) {
	r.RegisterActivityWithOptions(l.describe, activity.RegisterOptions{Name: contract.DescribeWorker})
}

// describe is DescribeWorker. A question about nothing in particular needs no input.
func (l *Housekeeping) describe(ctx context.Context, raw converter.RawValue) (contract.WorkerInfo, error) {
	if contract.Absent(raw, "") == nil {
		return l.Describe(), nil
	}
	return checked(func(_ context.Context, in contract.DescribeInput) (contract.WorkerInfo, error) {
		info := l.Describe()
		if edition, err := l.Edition(in.Task); err == nil { // else it does not have the task
			info.Edition = edition
		}
		return info, nil
	})(ctx, raw)
}

// indexSource finds where the items of a source begin and how many there are. Mistakes in
// the file end the map.
func (l *Housekeeping) indexSource(ctx context.Context, in contract.IndexInput) (contract.Source, error) {
	defer heartbeat(ctx)()
	if err := l.apart(in); err != nil {
		return contract.Source{}, err
	}
	source, err := l.index(ctx, in)
	if errors.Is(err, fs.ErrNotExist) {
		return source, badInput(err, "put the file there, or correct the source")
	}
	if err == nil && in.Key != "" && source.Items > 0 {
		err = l.checkField(ctx, source, in.Key)
	}
	return source, classify(err)
}

// index indexes the source. The rows of a table become JSON lines first.
func (l *Housekeeping) index(ctx context.Context, in contract.IndexInput) (contract.Source, error) {
	if !names.Table(in.Source) {
		return l.Store.Sources.Find(ctx, in.Source, in.Index)
	}
	key, err := l.Store.Objects.Key(in.Source)
	if err != nil {
		return contract.Source{}, err
	}
	table, err := objects.OpenAt(ctx, l.Store.Objects, key)
	if err != nil {
		return contract.Source{}, err
	}
	rows, err := columns.Items(ctx, table, table.Size(), l.Store.Objects.Locate(key), in.Columns)
	if err != nil {
		return contract.Source{}, err
	}
	defer rows.Close()
	return l.Store.Sources.IndexRows(ctx, rows, l.Store.Objects.Locate(key), table.Size(), in.Index)
}

func (l *Housekeeping) checkField(ctx context.Context, source contract.Source, field string) error {
	for item, err := range l.Store.Sources.Items(ctx, source, 0, 1) {
		if err == nil {
			item, _, err = items.Unwrap(source, item)
		}
		if err != nil {
			return err
		}
		if err := text.CheckField(item, field); err != nil {
			return badInput(fmt.Errorf("key: %w", err), "name one of them")
		}
	}
	return nil
}

// apart returns an error if the results file, beside which the index lies, is the source
// under another name.
func (l *Housekeeping) apart(in contract.IndexInput) error {
	output, beside := strings.CutSuffix(path.Dir(in.Index), contract.PartsOf(""))
	to, err := l.Store.Objects.Key(output)
	if !beside || err != nil {
		return nil // what is wrong with the name is said where it is used
	}
	file, _, _ := names.CutResults(in.Source)
	if from, err := l.Store.Objects.Key(file); err == nil && from == to {
		return badInput(fmt.Errorf("the output %s is the source itself, which would be overwritten", output), "name another output")
	}
	return nil
}

func (l *Housekeeping) findParts(ctx context.Context, in contract.PartsInput) (contract.Found, error) {
	defer heartbeat(ctx)()
	found, err := l.Store.FindParts(ctx, in)
	for _, damaged := range found.Damaged {
		activity.GetLogger(ctx).Warn("a part was set aside; its items run again", "error", damaged)
	}
	return found, classify(err)
}

func (l *Housekeeping) mergeParts(ctx context.Context, in contract.MergeInput) (contract.Merged, error) {
	defer heartbeat(ctx)()
	merged, err := l.Store.Merge(ctx, in)
	if err == nil && merged.Output != "" && merged.Items <= gpumux.InlineItems && merged.Bytes <= gpumux.InlineBytes {
		var page contract.Page
		page, err = l.Store.Page(ctx, contract.PageInput{Output: merged.Output})
		merged.Results = page.Results
	}
	return merged, classify(err)
}

func (l *Housekeeping) readPage(ctx context.Context, in contract.PageInput) (contract.Page, error) {
	defer heartbeat(ctx)()
	page, err := l.Store.Page(ctx, in)
	if errors.Is(err, fs.ErrNotExist) {
		return page, badInput(err, "name the results file of a map that has completed")
	}
	return page, classify(err)
}

func (l *Housekeeping) writeList(ctx context.Context, in contract.ListInput) (contract.Work, error) {
	defer heartbeat(ctx)()
	work, err := l.Store.Sources.WriteList(ctx, in.Parts, in.Runs)
	return work, classify(err)
}
