// Package prune deletes from a store what maps have left there.
//
// It owns what is deleted together and what keeps it. It never asks a server: its caller
// says what is in use. Every call ends with its context.
package prune

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

	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/store"
)

// Options say what Run deletes.
type Options struct {
	// Before is when a map must have ended at the latest. Required.
	Before time.Time
	// DryRun deletes nothing.
	DryRun bool
	// Warn gets what could not be read, and what is kept for it. Default: nobody does.
	Warn func(problem string)
}

// Group is a unit of deletion: a folder of results, or an input.
type Group struct {
	Key     string `json:"key"`
	Bytes   int64  `json:"bytes"`
	Objects int    `json:"objects"`
	// Changed is when something in it was last written.
	Changed time.Time `json:"changed"`

	// parts are the folders of parts in it.
	parts []string
}

// Run deletes groups below maps/ and sources/ of a store that were last written before a
// time and are not used. Find notes the used objects after the store was listed; its
// error ends Run before anything is deleted. Inputs of a kept result are kept.
func Run(ctx context.Context, st *store.Store, o Options, find func(*Used) error) ([]Group, error) {
	old, young, err := groups(ctx, st, o.Before)
	if err != nil {
		return nil, err
	}
	used := &Used{st: st, runs: map[string]bool{}, warn: o.Warn}
	if err := find(used); err != nil {
		return nil, err
	}
	gone := []Group{}
	for _, p := range old {
		if used.has(p.Key) {
			young = append(young, p)
		} else {
			gone = append(gone, p)
		}
	}
	for _, p := range young { // of maps that the server may not know any more
		for _, parts := range p.parts {
			folder, err := st.Folder(parts)
			if err != nil {
				return nil, err
			}
			source, err := folder.Source(ctx)
			switch {
			case errors.As(err, new(*store.OwnerError)), errors.As(err, new(*objects.KeyError)):
				used.Unread(err, "")
			case err != nil:
				return nil, err
			}
			used.Add(source)
		}
	}
	gone = slices.DeleteFunc(gone, func(p Group) bool { return used.has(p.Key) })
	slices.SortFunc(gone, func(a, b Group) int { return cmp.Or(a.Changed.Compare(b.Changed), strings.Compare(a.Key, b.Key)) })
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
func (p Group) remove(ctx context.Context, st *store.Store) error {
	if source := sourceFile.FindStringSubmatch(p.Key); source != nil {
		if err := st.Objects.DeleteAll(ctx, source[1]+".index"); err != nil {
			return err
		}
	}
	return st.Objects.DeleteAll(ctx, p.Key)
}

// sourceFile is an object of an input that a client put into a store, or its index.
var sourceFile = regexp.MustCompile(`^(sources/[0-9a-f]{64})\.(jsonl|index)$`)

// groups sorts the objects of a store into units of deletion: those last written before a
// time, and younger ones.
func groups(ctx context.Context, st *store.Store, before time.Time) (old, young []Group, err error) {
	found := map[string]*Group{}
	for _, folder := range []string{"maps", "sources"} {
		for o, err := range st.Objects.Objects(ctx, folder) {
			if err != nil {
				return nil, nil, err
			}
			key := groupOf(o.Key)
			if key == "" {
				continue
			}
			p := found[key]
			if p == nil {
				p = &Group{Key: key}
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

// groupOf is the group of a key: maps/ID/RUN, or the lines of an input, with its index.
// Objects that people put there have none.
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

// Used are the objects that maps name. Its methods may be called from several goroutines.
type Used struct {
	st *store.Store
	mu sync.Mutex
	// keys are of results and inputs, runs the first runs of maps.
	keys []string
	runs map[string]bool
	// texts may name objects; inputs keeps all inputs.
	texts  []string
	inputs bool
	warn   func(problem string)
}

// Add notes names of objects; what lies outside the store does not matter.
func (u *Used) Add(objects ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range objects {
		name, _, _ = names.CutResults(name)
		if key, err := u.st.Objects.Key(name); err == nil {
			u.keys = append(u.keys, key)
		}
	}
}

// AddRun notes the first run of a map.
func (u *Used) AddRun(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runs[id] = true
}

// Unread notes what could not be understood: its text may name objects, and without a
// text it may name any input. Why is told, if it is not nil.
func (u *Used) Unread(why error, text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	kept := "what it names"
	if text != "" {
		u.texts = append(u.texts, text)
	} else if why != nil {
		u.inputs, kept = true, "every input"
	}
	if why != nil && u.warn != nil {
		u.warn(fmt.Sprintf("%v; %s is kept", why, kept))
	}
}

// has reports whether a group holds something that is named, or may be.
func (u *Used) has(group string) bool {
	output := strings.TrimSuffix(group, ".parts")
	last := strings.TrimSuffix(path.Base(output), ".jsonl") // no form of the name lacks it
	return u.runs[path.Base(group)] || u.inputs && sourceFile.MatchString(group) ||
		slices.ContainsFunc(u.texts, func(text string) bool { return strings.Contains(text, last) }) || slices.ContainsFunc(u.keys, func(key string) bool {
		return key == output || strings.HasPrefix(key, group+"/")
	})
}
