package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
)

// manifest is the object manifest.json of a folder of parts: whose results they are.
type manifest struct {
	// Version is 1.
	Version int            `json:"manifest"`
	ID      string         `json:"id"`
	Owner   contract.Owner `json:"owner"`
	// Kept says that the results are those of a map that is retried. Of the Owner only the Input has to stay.
	Kept bool `json:"kept,omitempty"`
}

// OwnerError says that a folder holds the results of another map, or lies in another store. It stays wrong however often it is tried.
type OwnerError struct{ Problem string }

// Error names both.
func (e *OwnerError) Error() string { return e.Problem }

// claim writes the manifest of a folder, or checks that the one there has the same owner.
func (s *Store) claim(ctx context.Context, folder string, owner contract.Owner) (contract.Claim, error) {
	claim := contract.Claim{StoreURL: s.url}
	if output, beside := strings.CutSuffix(folder, contract.PartsOf("")); beside && s.home.dir != "" {
		if info, err := os.Stat(filepath.Join(s.home.dir, filepath.FromSlash(output))); err == nil && info.IsDir() {
			return claim, &OwnerError{fmt.Sprintf("the output %s is a folder of the store; name a file in it", s.Locate(output))}
		}
	}
	var err error
	if claim.Store, err = s.Identity(ctx); err != nil {
		return claim, err
	}
	text, _ := json.Marshal(manifest{Version: 1, ID: rand.Text(), Owner: owner}) // it always encodes
	there, err := s.putOnce(ctx, folder+"/manifest.json", text, creation{sealing: sealedOnly})
	m, err := s.parseManifest(folder, there, err)
	if err != nil {
		return claim, err
	}
	if m.Kept && m.Owner.Input != owner.Input {
		return claim, &OwnerError{fmt.Sprintf("the results that are kept are of %s, and now it is %s; put the items back, or start a new map",
			m.Owner.Input, owner.Input)}
	}
	if m.Kept {
		m.Owner, m.Kept = owner, false
		text, _ := json.Marshal(m)
		if err := s.put(ctx, folder+"/manifest.json", text, creation{}); err != nil {
			return claim, err
		}
	}
	if m.Owner != owner {
		return claim, &OwnerError{fmt.Sprintf("%s holds the results of %s; this map is %s; give another output or ID, or delete that folder",
			s.Locate(folder), describe(m.Owner), describe(owner))}
	}
	claim.ID = m.ID
	return claim, nil
}

// parseManifest decodes the manifest of a folder as it was read, with the error of that. What is no manifest is an *OwnerError.
func (s *Store) parseManifest(folder string, text []byte, err error) (m manifest, _ error) {
	if err != nil && !errors.Is(err, errSealBroken) {
		return m, err
	}
	if err != nil || json.Unmarshal(text, &m) != nil || m.Version != 1 {
		return m, &OwnerError{fmt.Sprintf("%s is no manifest of this version: %.100q; give another output, or delete that folder",
			s.Locate(folder+"/manifest.json"), text)}
	}
	return m, nil
}

// readManifest reads the manifest of a folder.
func (s *Store) readManifest(ctx context.Context, folder string) (manifest, error) {
	text, err := s.readSmall(ctx, folder+"/manifest.json", sealedOnly)
	return s.parseManifest(folder, text, err)
}

// KeepOwner notes in a folder to which results are copied whose they were, so that none are added over other items.
func (s *Store) KeepOwner(ctx context.Context, from, to string) error {
	text, err := s.readSmall(ctx, from+"/manifest.json", sealedOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // of a map whose results were no file
	}
	var m manifest
	if err != nil || json.Unmarshal(text, &m) != nil {
		return err
	}
	m.ID, m.Kept = rand.Text(), true
	text, _ = json.Marshal(m)
	return s.put(ctx, to+"/manifest.json", text, creation{})
}

func describe(o contract.Owner) string {
	text := "task " + o.Task
	if o.Edition != "" {
		text += " (edition " + o.Edition + ")"
	}
	text = fmt.Sprintf("%s over %d items of %s", text, o.Items, o.Input)
	if o.Arg != "" {
		text += " with the argument " + o.Arg
	}
	if o.Key != "" {
		text += fmt.Sprintf(" with the key %q", o.Key)
	}
	if o.WithItem {
		text += " with the items"
	}
	return text
}

// Holds returns an *OwnerError if the claim to a folder was made in another store. The folder's manifest proves as well as the identity
// that it was made in this one: workers disagree about the identity when store.json was lost and made anew while they ran.
func (s *Store) Holds(ctx context.Context, parts string, claim contract.Claim) error {
	if claim.Store == "" {
		return nil
	}
	own, err := s.Identity(ctx)
	if err == nil && own == claim.Store {
		return nil
	}
	folder, wrong := s.Key(parts)
	if wrong != nil {
		return wrong
	}
	m, missing := s.readManifest(ctx, folder)
	if missing == nil && m.ID == claim.ID {
		return nil
	}
	if err != nil || missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		return cmp.Or(err, missing)
	}
	if s.url == claim.StoreURL {
		return &OwnerError{fmt.Sprintf("this worker finds nothing of the map in its store %s, although the map was begun in one with that URL: "+
			"either it is not shared, such as a folder that each host has for itself, or %s was deleted; give all workers of a namespace "+
			"one store, and start the map again", s.url, s.Locate(folder))}
	}
	return &OwnerError{fmt.Sprintf("this worker keeps results in %s, and the map's lie in %s, which is another store; give all workers of a "+
		"namespace the same one", s.url, claim.StoreURL)}
}

// Identity is the ID of the store, the same for all URLs that open it.
func (s *Store) Identity(ctx context.Context) (string, error) {
	s.mu.Lock()
	id := s.identity
	s.mu.Unlock()
	if id != "" {
		return id, nil
	}
	text, err := s.putOnce(ctx, names.Identity, fmt.Appendf(nil, `{"id":%q}`, rand.Text()), creation{sealing: asItLies, own: true})
	if err != nil {
		return "", err
	}
	var identity struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(text, &identity); err != nil || identity.ID == "" {
		return "", &OwnerError{fmt.Sprintf("%s does not say which store this is: %.100q; delete it, and the next map makes it anew",
			s.Locate(names.Identity), text)}
	}
	s.mu.Lock()
	s.identity = identity.ID
	s.mu.Unlock()
	return identity.ID, nil
}

// putOnce writes a small object unless there is one, and returns the one that is there then.
func (s *Store) putOnce(ctx context.Context, key string, text []byte, c creation) ([]byte, error) {
	there, err := s.readSmall(ctx, key, c.sealing)
	if !errors.Is(err, fs.ErrNotExist) {
		return there, err
	}
	for _, c.exclusive = range []bool{true, false} {
		err = s.put(ctx, key, text, c)
		var refusal interface{ ErrorCode() string }
		// If the server cannot refuse to overwrite, a writer in the same moment may be lost.
		if !errors.As(err, &refusal) || refusal.ErrorCode() != "NotImplemented" {
			break
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return s.readSmall(ctx, key, c.sealing)
}

func (s *Store) put(ctx context.Context, key string, text []byte, c creation) error {
	w, err := s.create(ctx, key, c)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(text); err != nil {
		return err
	}
	return w.Close()
}

func (s *Store) readSmall(ctx context.Context, key string, how sealing) ([]byte, error) {
	o, err := s.openAs(ctx, key, 0, -1, how)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	return io.ReadAll(io.LimitReader(o, 1<<20))
}
