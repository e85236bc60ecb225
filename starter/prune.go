package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/store"
)

// PruneOptions say what Prune deletes.
type PruneOptions struct {
	// Before is when a map must have ended at the latest. Default: it must be given.
	Before time.Time
	// DryRun deletes nothing.
	DryRun bool
}

// Pruned is what Prune deleted, or would delete: a folder of results, or an input.
type Pruned struct {
	Key     string `json:"key"`
	Bytes   int64  `json:"bytes"`
	Objects int    `json:"objects"`
	// Changed is when something in it was last written.
	Changed time.Time `json:"changed"`

	// parts are the folders of parts in it.
	parts []string
}

// Prune deletes from the workers' store what maps have left there that ended before a time: folders below maps/ and inputs below
// sources/. It keeps what a running or a younger map, or a schedule, names as its results or its input. A map that the server does not know
// has ended when something was last written to its folder. When it cannot be sure of one map it deletes nothing.
func (s *Starter) Prune(ctx context.Context, o PruneOptions) ([]Pruned, error) {
	st, err := s.store(ctx)
	if err != nil {
		return nil, err
	}
	old, young, err := group(ctx, st, o.Before)
	if err != nil {
		return nil, err
	}
	// Asked after the store was listed: what starts from here on finds young objects or none.
	used := &inUse{st: st, runs: map[string]bool{}}
	if err := s.findUsed(ctx, o.Before, used); err != nil {
		return nil, err
	}
	gone := []Pruned{}
	for _, p := range old {
		if used.has(p.Key) {
			young = append(young, p)
		} else {
			gone = append(gone, p)
		}
	}
	for _, p := range young { // of maps that the server may not know any more
		for _, parts := range p.parts {
			source, err := st.SourceOf(ctx, parts)
			if err != nil {
				return nil, err
			}
			used.add(source)
		}
	}
	gone = slices.DeleteFunc(gone, func(p Pruned) bool { return used.has(p.Key) })
	slices.SortFunc(gone, func(a, b Pruned) int { return cmp.Or(a.Changed.Compare(b.Changed), strings.Compare(a.Key, b.Key)) })
	if o.DryRun {
		return gone, nil
	}
	for i, p := range gone {
		if err := p.remove(ctx, st); err != nil {
			return gone[:i], err
		}
	}
	return gone, nil
}

// remove deletes a folder, or an input with its index.
func (p Pruned) remove(ctx context.Context, st *store.Store) error {
	if source := sourceFile.FindStringSubmatch(p.Key); source != nil {
		if err := st.DeleteAll(ctx, source[1]+".index"); err != nil {
			return err
		}
	}
	return st.DeleteAll(ctx, p.Key)
}

// sourceFile is an object of an input that a client put into a store, or its index.
var sourceFile = regexp.MustCompile(`^(sources/[0-9a-f]{64})\.(jsonl|index)$`)

// group puts together what is deleted together, and says what was last written before a time.
func group(ctx context.Context, st *store.Store, before time.Time) (old, young []Pruned, err error) {
	found := map[string]*Pruned{}
	for _, folder := range []string{"maps", "sources"} {
		for o, err := range st.Objects(ctx, folder) {
			if err != nil {
				return nil, nil, err
			}
			key := groupOf(o.Key)
			if key == "" {
				continue
			}
			p := found[key]
			if p == nil {
				p = &Pruned{Key: key}
				found[key] = p
			}
			p.Bytes, p.Objects = p.Bytes+o.Bytes, p.Objects+1
			if o.Changed.After(p.Changed) {
				p.Changed = o.Changed
			}
			if folder, is := strings.CutSuffix(o.Key, ".parts/manifest.json"); is {
				p.parts = append(p.parts, folder+".parts")
			}
		}
	}
	for _, p := range found {
		if p.Changed.Before(before) {
			old = append(old, *p)
		} else {
			young = append(young, *p)
		}
	}
	return old, young, nil
}

// groupOf is the first three names of a key below maps, which are maps/<map>/<run> unless somebody named the output; of an input its
// lines, with the index. Empty is for what people put there.
func groupOf(key string) string {
	if source := sourceFile.FindStringSubmatch(key); source != nil {
		return source[1] + ".jsonl"
	}
	elements := strings.Split(key, "/")
	if elements[0] != "maps" || len(elements) < 3 {
		return ""
	}
	return path.Join(elements[:3]...)
}

// inUse are the objects that maps name.
type inUse struct {
	st *store.Store
	mu sync.Mutex
	// keys are of results and inputs. runs are the first runs of maps, which name the folder of a map that names no output.
	keys []string
	runs map[string]bool
}

// add notes names of objects; what lies outside the store does not matter.
func (u *inUse) add(names ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range names {
		name, _ = gpumux.CutValues(name)
		if key, err := u.st.Key(name); err == nil {
			u.keys = append(u.keys, key)
		}
	}
}

// addRun notes the first run of a map.
func (u *inUse) addRun(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runs[id] = true
}

// has reports whether a group holds something that is named.
func (u *inUse) has(group string) bool {
	output := strings.TrimSuffix(group, ".parts")
	return u.runs[path.Base(group)] || slices.ContainsFunc(u.keys, func(key string) bool {
		return key == output || strings.HasPrefix(key, group+"/")
	})
}

// findUsed notes what running maps, those that ended since, and schedules name.
func (s *Starter) findUsed(ctx context.Context, since time.Time, used *inUse) error {
	var live []*run
	for r, err := range s.newestRuns(ctx, "") {
		switch {
		case err != nil:
			return err
		case r.Unread != nil:
			return fmt.Errorf("look up map %s: %w", r.ID, r.Unread)
		case r.Closed.IsZero() || !r.Closed.Before(since):
			live = append(live, r)
		}
	}
	const most = 8
	errs := make([]error, len(live))
	abreast(len(live), most, func(i int) {
		first, in, err := s.current(ctx, live[i])
		errs[i] = err
		used.addRun(first)
		used.add(live[i].Memo.Output, in.Output, in.Source)
	})
	return cmp.Or(errors.Join(errs...), s.eachScheduled(ctx, func(in gpumux.MapInput) { used.add(in.Output, in.Source) }))
}

// eachScheduled calls f with the input of every schedule's maps.
func (s *Starter) eachScheduled(ctx context.Context, f func(gpumux.MapInput)) error {
	all, err := s.Schedules(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		_, in, err := s.ScheduleOf(ctx, one.Name)
		if errors.As(err, new(*ScheduleError)) {
			continue // it has gone meanwhile
		}
		if err != nil {
			return err
		}
		f(in)
	}
	return nil
}

// current reads from the history of a run which run of its map was the first, and its own input: the server keeps it for longer than that
// of the first run.
func (s *Starter) current(ctx context.Context, r *run) (first string, in gpumux.MapInput, err error) {
	page, err := s.Client.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: s.namespace(), Execution: &commonpb.WorkflowExecution{WorkflowId: r.ID, RunId: r.RunID},
		MaximumPageSize: 1, HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT,
	})
	if errors.As(err, new(*serviceerror.NotFound)) {
		return "", in, nil // it has gone since it was listed, so it has ended
	}
	if err == nil && len(page.GetHistory().GetEvents()) == 0 {
		err = errors.New("its history is empty")
	}
	if err != nil {
		return "", in, fmt.Errorf("read the input of map %s: %w", r.ID, err)
	}
	started := page.GetHistory().GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
	var continued struct {
		Input *gpumux.MapInput `json:"input"`
	}
	first = started.GetFirstExecutionRunId()
	if err := s.converter().FromPayloads(started.GetInput(), &continued); err == nil && continued.Input != nil {
		return first, *continued.Input, nil
	}
	if err := s.converter().FromPayloads(started.GetInput(), &in); err != nil {
		return first, in, fmt.Errorf("read the input of map %s: %w", r.ID, unseal(err))
	}
	return first, in, nil
}
