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

	"go.temporal.io/api/serviceerror"
	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/store"
)

// PruneOptions say what Prune deletes.
type PruneOptions struct {
	// Before is when a map must have ended at the latest. Required.
	Before time.Time
	// DryRun deletes nothing.
	DryRun bool
}

// Pruned is a unit of deletion: a folder of results, or an input.
type Pruned struct {
	Key     string `json:"key"`
	Bytes   int64  `json:"bytes"`
	Objects int    `json:"objects"`
	// Changed is when something in it was last written.
	Changed time.Time `json:"changed"`
}

// Prune deletes from the workers' store what was last written before a time: folders of
// results below maps/ and inputs below sources/. It keeps the results, inputs and
// arguments of the maps that run or ended since. It deletes nothing when it cannot read
// the input of one that runs.
func (s *Starter) Prune(ctx context.Context, o PruneOptions) ([]Pruned, error) {
	st, err := s.UseStore(ctx)
	if err != nil {
		return nil, err
	}
	old, err := findOld(ctx, st, o.Before)
	if err != nil {
		return nil, err
	}
	used, err := s.findUsed(ctx, st, o.Before) // after the list, so that nothing is new
	if err != nil {
		return nil, err
	}
	for key := range used {
		delete(old, prunedWith(key))
	}
	gone := []Pruned{}
	for _, p := range old {
		ofMap := strings.HasPrefix(path.Base(p.Key), contract.StagePrefix) && used[path.Dir(p.Key)]
		if !used[path.Base(p.Key)] && !ofMap {
			gone = append(gone, p)
		}
	}
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

func (p Pruned) remove(ctx context.Context, st *store.Store) error {
	if source := sourceFile.FindStringSubmatch(p.Key); source != nil {
		if err := st.Objects.DeleteAll(ctx, source[1]+".index"); err != nil {
			return err
		}
	}
	return st.Objects.DeleteAll(ctx, p.Key)
}

// sourceFile is an object of an input that a client put into a store, or its index.
var sourceFile = regexp.MustCompile(`^(sources/[0-9a-f]{64})(\.jsonl|\.index|\.arg)$`)

// findOld groups the objects of a store by what is deleted together, and returns the
// groups that were last written before a time.
func findOld(ctx context.Context, st *store.Store, before time.Time) (map[string]Pruned, error) {
	all := map[string]Pruned{}
	for _, folder := range []string{"maps", "sources"} {
		for o, err := range st.Objects.Objects(ctx, folder) {
			if err != nil {
				return nil, err
			}
			key := prunedWith(o.Key)
			if key == "" {
				continue
			}
			p := all[key]
			p.Key, p.Bytes, p.Objects = key, p.Bytes+o.Bytes, p.Objects+1
			if o.Changed.After(p.Changed) {
				p.Changed = o.Changed
			}
			all[key] = p
		}
	}
	for key, p := range all {
		if !p.Changed.Before(before) {
			delete(all, key)
		}
	}
	return all, nil
}

// prunedWith is what a key is deleted with: maps/ID/RUN, an argument, or the lines of an
// input, with its index. Objects that people put there have none.
func prunedWith(key string) string {
	if source := sourceFile.FindStringSubmatch(key); source != nil {
		return source[1] + strings.Replace(source[2], "index", "jsonl", 1)
	}
	elements := strings.Split(key, "/")
	if elements[0] != "maps" || len(elements) < 3 {
		return ""
	}
	return path.Join(elements[:3]...)
}

// findUsed returns the keys that maps name which run or ended since, the folders of their
// stages, and the IDs of their first runs.
func (s *Starter) findUsed(ctx context.Context, st *store.Store, since time.Time) (map[string]bool, error) {
	maps := s.registry()
	used := map[string]bool{}
	var mu sync.Mutex
	var reading errgroup.Group
	reading.SetLimit(askAtOnce)
	for r, err := range maps.newestRuns(ctx, "") {
		if err != nil {
			return nil, errors.Join(err, reading.Wait())
		}
		if !r.Closed.IsZero() && r.Closed.Before(since) {
			continue
		}
		reading.Go(func() error {
			first, in, err := maps.current(ctx, r)
			if err != nil && r.Closed.IsZero() {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			used[first] = true
			for _, name := range []string{r.Memo.Output, in.Output, contract.OutputOf(r.ID, first), in.Source, in.ArgFile} {
				name, _, _ = names.CutResults(name)
				if key, err := st.Objects.Key(name); err == nil { // else it lies outside the store
					used[key], used[path.Dir(path.Dir(key))] = true, true
				}
			}
			return nil
		})
	}
	return used, reading.Wait()
}

// current reads the input of a map, and the ID of its first run, from the history of the
// newest run: the server may no longer keep that of the first. Where the run has gone
// meanwhile, both are empty.
func (r registry) current(ctx context.Context, one *run) (first string, in gpumux.MapInput, err error) {
	began, err := r.began(ctx, one.ID, one.RunID)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return "", in, nil
	}
	if err != nil {
		return "", in, err
	}
	var continued struct {
		Input *gpumux.MapInput `json:"input"`
	}
	if err = r.data.FromPayloads(began.GetInput(), &continued); err == nil && continued.Input != nil {
		in = *continued.Input
	} else if err == nil {
		err = r.data.FromPayloads(began.GetInput(), &in)
	}
	if err != nil {
		err = fmt.Errorf("read the input of map %s: %w", one.ID, fleet.WithCodecHint(err))
	}
	return began.GetFirstExecutionRunId(), in, err
}
