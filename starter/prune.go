package starter

import (
	"cmp"
	"context"
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/store"
)

// PruneOptions say what Prune deletes.
type PruneOptions struct {
	// Before is when a map must have ended at the latest. Required.
	Before time.Time
	// DryRun deletes nothing.
	DryRun bool
	// Warn gets what could not be read, for which every input is kept. Default: nobody does.
	Warn func(problem string)
}

// Pruned is a unit of deletion: a folder of results, or an input.
type Pruned struct {
	Key     string `json:"key"`
	Bytes   int64  `json:"bytes"`
	Objects int    `json:"objects"`
	// Changed is when something in it was last written.
	Changed time.Time `json:"changed"`

	// parts are the folders of parts in it.
	parts []string
}

// Prune deletes from the workers' store what maps have left there that ended before a
// time: folders below maps/ and inputs below sources/. It keeps what a running or a
// younger map, or a schedule, names as its results or its input. A map that the server
// does not know has ended when something was last written to its folder. It deletes
// nothing when it lacks the key to a running map or a schedule.
func (s *Starter) Prune(ctx context.Context, o PruneOptions) ([]Pruned, error) {
	st, err := s.openStore(ctx)
	if err != nil {
		return nil, err
	}
	all, err := findPruned(ctx, st)
	if err != nil {
		return nil, err
	}
	u := &used{st: st, runs: map[string]bool{}, warn: o.Warn}
	if err := s.findUsed(ctx, o.Before, u); err != nil { // after the list, so that nothing is new
		return nil, err
	}
	gone := []Pruned{}
	for _, p := range all {
		if p.Changed.Before(o.Before) && !u.has(p.Key) {
			gone = append(gone, p)
			continue
		}
		for _, parts := range p.parts { // of maps that the server may not know any more
			folder, err := st.Folder(parts)
			if err != nil {
				return nil, err
			}
			source, err := folder.Source(ctx)
			switch {
			case errors.As(err, new(*store.OwnerError)), errors.As(err, new(*objects.KeyError)):
				u.unread(err)
			case err != nil:
				return nil, err
			}
			u.add(source)
		}
	}
	gone = slices.DeleteFunc(gone, func(p Pruned) bool { return u.has(p.Key) })
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
		if err := st.Objects.DeleteAll(ctx, source[1]+".index"); err != nil {
			return err
		}
	}
	return st.Objects.DeleteAll(ctx, p.Key)
}

// sourceFile is an object of an input that a client put into a store, or its index.
var sourceFile = regexp.MustCompile(`^(sources/[0-9a-f]{64})\.(jsonl|index)$`)

// findPruned groups the objects of a store by what is deleted together.
func findPruned(ctx context.Context, st *store.Store) (all map[string]Pruned, err error) {
	all = map[string]Pruned{}
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
			if folder, is := strings.CutSuffix(o.Key, ".parts/manifest.json"); is {
				p.parts = append(p.parts, folder+".parts")
			}
			all[key] = p
		}
	}
	return all, nil
}

// prunedWith is what a key is deleted with: maps/ID/RUN, or the lines of an input, with
// its index. Objects that people put there have none.
func prunedWith(key string) string {
	if source := sourceFile.FindStringSubmatch(key); source != nil {
		return source[1] + ".jsonl"
	}
	elements := strings.Split(key, "/")
	if elements[0] != "maps" || len(elements) < 3 {
		return ""
	}
	return path.Join(elements[:3]...)
}
