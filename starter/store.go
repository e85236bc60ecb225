package starter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gpumux/gpumux/store"
)

// NoStoreError says why the workers' store could not be used from here.
type NoStoreError struct {
	// URL is the workers' store, when they said.
	URL string
	Err error
}

// Error says what to do.
func (e *NoStoreError) Error() string {
	return fmt.Sprintf("%v; give the workers' store", e.Err)
}

// Unwrap gives the cause.
func (e *NoStoreError) Unwrap() error { return e.Err }

// store is the given store, or the workers' own. Its errors are *NoStoreError.
func (s *Starter) store(ctx context.Context) (*store.Store, error) {
	if s.Store != nil {
		return s.Store, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened != nil {
		return s.opened, nil
	}
	offer, err := s.Fleet().Offer(ctx)
	if err != nil {
		return nil, &NoStoreError{Err: err}
	}
	return s.openStore(ctx, offer.Store, offer.Host)
}

// openStore opens the workers' store if it can be the same from here.
func (s *Starter) openStore(ctx context.Context, url, host string) (*store.Store, error) {
	here, _ := os.Hostname()
	switch {
	case url == "":
		return nil, &NoStoreError{Err: errors.New("the workers have no store")}
	case strings.HasPrefix(url, "mem:"):
		return nil, &NoStoreError{URL: url, Err: fmt.Errorf("the workers' store %s is in their memory", url)}
	case strings.HasPrefix(url, "file:") && host != here:
		return nil, &NoStoreError{URL: url, Err: fmt.Errorf("the workers' store %s is a folder of host %s, and this is %s", url, host, here)}
	}
	st, err := store.Open(ctx, url, s.Keys)
	if err != nil {
		return nil, &NoStoreError{URL: url, Err: err}
	}
	s.opened = st
	return st, nil
}

// Holds reports whether a URL is an object in the workers' store.
func (s *Starter) Holds(ctx context.Context, url string) bool {
	st, err := s.store(ctx)
	var away *NoStoreError
	switch {
	case err == nil:
		_, err = st.Key(url)
		return err == nil
	case errors.As(err, &away) && away.URL != "": // it is out of reach from here, but its URL is known
		folder, _, _ := strings.Cut(away.URL, "?")
		return strings.HasPrefix(url, strings.TrimSuffix(folder, "/")+"/")
	}
	return false
}
