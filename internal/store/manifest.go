package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/text"
)

// manifest is the object manifest.json of a folder of parts, which names their owner.
type manifest struct {
	// Version is 1.
	Version int            `json:"manifest"`
	ID      string         `json:"id"`
	Owner   contract.Owner `json:"owner"`
	// Kept says that the results are of a map that is retried. The next owner may differ in
	// all but the Input.
	Kept bool `json:"kept,omitempty"`
}

// OwnerError says that a folder holds another map's results, or lies in another store.
type OwnerError struct {
	Problem string
	// edition is that of the results, if the other map differs from this in nothing else.
	edition string
}

func (e *OwnerError) Error() string { return e.Problem }

func (f *Folder) manifestKey() string { return f.key + "/manifest.json" }

// claim writes the manifest, or checks that the one there has the same owner.
func (f *Folder) claim(ctx context.Context, owner contract.Owner) (contract.Claim, error) {
	claim := contract.Claim{StoreURL: f.in.URL()}
	if output, beside := strings.CutSuffix(f.key, contract.PartsOf("")); beside && f.in.IsFolder(output) {
		return claim, &OwnerError{Problem: fmt.Sprintf("the output %s is a folder of the store; name a file in it", f.in.Locate(output))}
	}
	var err error
	if claim.Store, err = f.s.Identity(ctx); err != nil {
		return claim, err
	}
	text, _ := json.Marshal(manifest{Version: 1, ID: rand.Text(), Owner: owner}) // it always encodes
	found, err := f.in.PutOnce(ctx, f.manifestKey(), text, objects.Creation{})
	m, err := f.parseManifest(found, err)
	if err != nil {
		return claim, err
	}
	if m.Kept && m.Owner.Input != owner.Input {
		return claim, &OwnerError{Problem: fmt.Sprintf("the results that are kept are of %s, and now it is %s; put the items back, or start a new map",
			m.Owner.Input, owner.Input)}
	}
	if m.Kept || m.Owner != owner && takesOver(owner, m.Owner) {
		m.Owner, m.Kept = owner, false
		text, _ := json.Marshal(m)
		if err := f.in.Put(ctx, f.manifestKey(), bytes.NewReader(text), objects.Creation{}); err != nil {
			return claim, err
		}
	}
	if m.Owner != owner {
		hint := "give another output or ID, or delete that folder"
		free := owner
		if free.Edition = gpumux.AnyEdition; takesOver(free, m.Owner) {
			hint += fmt.Sprintf(", or give the edition %q, which leaves results of other code as they are", gpumux.AnyEdition)
		}
		taken := &OwnerError{Problem: fmt.Sprintf("%s holds the results of %s; this map is %s; %s",
			f.in.Locate(f.key), describe(m.Owner), describe(owner), hint)}
		if free.Edition = m.Owner.Edition; free == m.Owner {
			taken.edition = m.Owner.Edition
		}
		return claim, taken
	}
	claim.ID = m.ID
	return claim, nil
}

// takesOver reports whether an owner whose code may be of any edition goes on from the
// results of another: of the same map, whatever its edition.
func takesOver(owner, other contract.Owner) bool {
	other.Edition = gpumux.AnyEdition
	return owner == other
}

// parseManifest decodes the manifest. It passes on err, the error of reading it; anything
// but a manifest is an *OwnerError.
func (f *Folder) parseManifest(text []byte, err error) (m manifest, _ error) {
	if err != nil && !errors.As(err, new(*objects.DamageError)) {
		return m, err
	}
	if err != nil || json.Unmarshal(text, &m) != nil || m.Version != 1 {
		return m, &OwnerError{Problem: fmt.Sprintf("%s is no manifest of this version: %.100q; give another output, or delete that folder",
			f.in.Locate(f.manifestKey()), text)}
	}
	return m, nil
}

func (f *Folder) manifest(ctx context.Context) (manifest, error) {
	text, err := f.in.ReadAll(ctx, f.manifestKey())
	return f.parseManifest(text, err)
}

// KeepOwner copies the manifest beside the results, so that none come for other items.
func (f *Folder) KeepOwner(ctx context.Context, to *Folder) error {
	m, err := f.manifest(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // of a map whose results were no file
	}
	if err != nil {
		return err
	}
	m.ID, m.Kept = rand.Text(), true
	text, _ := json.Marshal(m)
	return f.in.Put(ctx, to.manifestKey(), bytes.NewReader(text), objects.Creation{})
}

func describe(o contract.Owner) string {
	return "task " + o.Task + text.When(o.Edition != "", " (edition %s)", o.Edition) + fmt.Sprintf(" over %d items of %s", o.Items, o.Input) +
		text.When(o.Arg != "", " with the argument %s", o.Arg) + text.When(o.Key != "", " with the key %q", o.Key) +
		text.When(o.WithItem, " with the items")
}

// CheckOwner returns an *OwnerError if the claim to the folder was made in another store.
func (f *Folder) CheckOwner(ctx context.Context, claim contract.Claim) error {
	if claim.Store == "" {
		return nil
	}
	if identity, err := f.s.Identity(ctx); err != nil || identity == claim.Store {
		return err
	}
	if f.in.URL() == claim.StoreURL {
		return &OwnerError{Problem: fmt.Sprintf("this worker finds nothing of the map in its store %s, although the map was begun in one with that URL: "+
			"either it is not shared, such as a folder that each host has for itself, or %s was deleted; give all workers of a namespace "+
			"one store, and start the map again", f.in.URL(), f.in.Locate(f.key))}
	}
	return &OwnerError{Problem: fmt.Sprintf("this worker keeps results in %s, and the map's lie in %s, which is another store; give all workers of a "+
		"namespace the same one", f.in.URL(), claim.StoreURL)}
}
