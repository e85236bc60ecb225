package store

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/gpumux/gpumux"
)

// NameError says that a name is no key and no URL of this store. It stays wrong however often it is tried.
type NameError struct{ Problem string }

// Error names the name and what is allowed.
func (e *NameError) Error() string { return e.Problem }

// wrong makes a *NameError of what is wrong with a name, nil of nil.
func wrong(err error) error {
	if err == nil {
		return nil
	}
	return &NameError{err.Error()}
}

// Key is the key that a name means. A name without a scheme is a key itself; a URL must lie inside this store. The error says
// what is allowed, so that a map's input can never reach other files.
func (s *Store) Key(name string) (string, error) {
	p, key, err := s.find(name)
	if err == nil && p != s.home {
		err = wrong(fmt.Errorf("%q lies in a folder of sources, which may only be read; use a key of the store %s", name, s.url))
	}
	return key, err
}

// Locate is the full URL of a key. It names the object but carries none of the store's parameters.
func (s *Store) Locate(key string) string { return s.home.url(key) }

// find is the place and the key that a name means, for reading.
func (s *Store) find(name string) (*place, string, error) {
	p, key, err := s.search(name)
	return p, key, wrong(err)
}

func (s *Store) search(name string) (*place, string, error) {
	if strings.HasPrefix(name, "/") {
		return nil, "", fmt.Errorf("%q is a path of a machine; use %s", name, s.allowed())
	}
	scheme, _, isURL := strings.Cut(name, ":/")
	if !isURL || strings.Contains(scheme, "/") {
		return s.home, name, gpumux.CheckKey(name)
	}
	u, err := url.Parse(name)
	if err != nil {
		return nil, "", fmt.Errorf("%q is neither a key nor a URL: %w", name, err)
	}
	if u.Fragment != "" {
		return nil, "", fmt.Errorf("%q holds a #; write it as %%23 in a URL, or use the key", name)
	}
	for _, p := range append([]*place{s.home}, s.foreign...) {
		if key, ok := p.key(u); ok {
			return p, key, gpumux.CheckKey(key)
		}
	}
	return nil, "", fmt.Errorf("%q lies outside the store; use %s", name, s.allowed())
}

func (s *Store) allowed() string {
	text := "a key, or a URL inside " + s.home.url("")
	for _, p := range s.foreign {
		text += " or (to read) " + p.url("")
	}
	return text
}
