package store

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/gpumux/gpumux/internal/names"
)

// NameError says that a name is no key and no URL of this store. It stays wrong however often it is tried.
type NameError struct{ Problem string }

// Error names the name and what is allowed.
func (e *NameError) Error() string { return e.Problem }

// Key is the key that a name means. A name without a scheme is a key itself. A URL must lie inside this store, so that a map's
// input can never reach other files. The error is a *NameError.
func (s *Store) Key(name string) (string, error) {
	key, err := s.parseName(name)
	if err != nil {
		return key, &NameError{err.Error()}
	}
	return key, nil
}

// output is the key of a results file that a caller names.
func (s *Store) output(name string) (string, error) { return s.allowed(name, names.Output) }

// Writable is the key of something else that a caller has written, such as a folder of parts. The error is a *NameError.
func (s *Store) Writable(name string) (string, error) { return s.allowed(name, names.Writable) }

func (s *Store) allowed(name string, check func(key string) error) (string, error) {
	key, err := s.Key(name)
	if err != nil {
		return key, err
	}
	if err := check(key); err != nil {
		return key, &NameError{err.Error()}
	}
	return key, nil
}

// Locate is the full URL of a key. It names the object but carries none of the store's parameters.
func (s *Store) Locate(key string) string { return s.home.url(key) }

func (s *Store) parseName(name string) (string, error) {
	allowed := "a key, or a URL inside " + s.home.url("")
	if strings.HasPrefix(name, "/") {
		return "", fmt.Errorf("%q is a path of a machine; use %s", name, allowed)
	}
	scheme, _, isURL := strings.Cut(name, ":/")
	if !isURL || strings.Contains(scheme, "/") {
		return name, names.Key(name)
	}
	u, err := url.Parse(name)
	if err != nil {
		return "", fmt.Errorf("%q is neither a key nor a URL: %w", name, err)
	}
	if u.Fragment != "" {
		return "", fmt.Errorf("%q holds a #; write it as %%23 in a URL, or use the key", name)
	}
	key, ok := s.home.key(u)
	if !ok {
		return "", fmt.Errorf("%q lies outside the store; use %s", name, allowed)
	}
	return key, names.Key(key)
}
