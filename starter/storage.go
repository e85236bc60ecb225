package starter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/store"
)

// NoStoreError says why the workers' store could not be used from here.
type NoStoreError struct {
	// URL is the workers' store, when they said.
	URL string
	Err error
}

func (e *NoStoreError) Error() string { return fmt.Sprintf("%v; give the workers' store", e.Err) }

func (e *NoStoreError) Unwrap() error { return e.Err }

// OpenStore opens the store, which is otherwise opened when it is first needed.
func (s *Starter) OpenStore(ctx context.Context) error {
	_, err := s.UseStore(ctx)
	return err
}

// UseStore is OpenStore for packages of gpumux, which use the store directly. It opens
// Store, else the workers' own, whose errors are *NoStoreError.
func (s *Starter) UseStore(ctx context.Context) (*store.Store, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.opened != nil {
		return s.opened, nil
	}
	var err error
	if s.Store != "" {
		s.opened, err = store.OpenSame(ctx, s.Store, s.StoreID)
	} else {
		s.opened, err = s.openWorkersStore(ctx)
	}
	return s.opened, err
}

func (s *Starter) openWorkersStore(ctx context.Context) (st *store.Store, err error) {
	offer, err := s.fleet().Offer(ctx)
	if err != nil {
		return nil, &NoStoreError{Err: err}
	}
	here, _ := os.Hostname()
	switch url := offer.Store; {
	case url == "":
		err = errors.New("the workers have no store")
	case strings.HasPrefix(url, "mem:"):
		err = fmt.Errorf("the workers' store %s is in their memory", url)
	case strings.HasPrefix(url, "file:") && offer.Host != here:
		err = fmt.Errorf("the workers' store %s is a folder of host %s, and this is %s", url, offer.Host, here)
	default:
		st, err = store.Open(ctx, url)
	}
	if err != nil {
		return nil, &NoStoreError{URL: offer.Store, Err: err}
	}
	return st, nil
}

// place puts the items where the workflow finds them and returns the URL of the store
// that takes the results, if it can be reached from here.
func (s *Starter) place(ctx context.Context, m *Map) (string, error) {
	st, err := s.UseStore(ctx)
	if err != nil && m.large() {
		return "", fmt.Errorf("%d items (%s) of this map go through the workers' store: %w",
			m.Spooled.Items, gpumux.Size(m.Spooled.Bytes), err)
	}
	switch {
	case m.Spooled == nil:
	case m.Spooled.Items == 0:
		m.Input.Range, m.Input.Key = &gpumux.Range{}, "" // no result lacks it
	case m.large():
		if m.Input.Source, err = s.Put(ctx, m.Spooled); err != nil {
			return "", err
		}
	default:
		if m.Input.Items, err = (*items.Spooled)(m.Spooled).All(); err != nil {
			return "", fmt.Errorf("read the items back: %w", err)
		}
	}
	if err := s.placeArg(ctx, m); err != nil || st == nil {
		return "", err
	}
	return st.Objects.URL(), nil
}

// Put copies the items into the store, equal ones once, and returns their source.
func (s *Starter) Put(ctx context.Context, in *Spooled) (source string, err error) {
	st, err := s.UseStore(ctx)
	if err != nil {
		return "", err
	}
	src, err := st.Sources.Put(ctx, (*items.Spooled)(in))
	if err != nil {
		return "", fmt.Errorf("put the items into store %s: %w", st.Objects.URL(), err)
	}
	return src.URL, nil
}

// placeArg puts an argument that is a file into the store, and one that is too large for
// a history into a source of one line.
func (s *Starter) placeArg(ctx context.Context, m *Map) error {
	in := &m.Input
	if m.ArgFile == "" && len(in.Arg) <= gpumux.MaxArg {
		return nil
	}
	st, err := s.UseStore(ctx)
	if err != nil {
		return fmt.Errorf("the argument of this map goes through the workers' store: %w", err)
	}
	if m.ArgFile != "" {
		if in.ArgFile, err = st.Sources.PutFile(ctx, m.ArgFile, in.ArgFile); err != nil {
			return fmt.Errorf("put the argument into store %s: %w", st.Objects.URL(), err)
		}
		return nil
	}
	var line bytes.Buffer
	if err := json.Compact(&line, in.Arg); err != nil {
		return fmt.Errorf("the argument: %w", err)
	}
	spooled, err := items.SpoolReader(&line, "the argument", items.JSONLines)
	if err != nil {
		return err
	}
	defer spooled.Remove()
	in.Arg = nil
	in.ArgFile, err = s.Put(ctx, (*Spooled)(spooled))
	return err
}

func (s *Starter) locate(ctx context.Context, output string) (st *store.Store, key string, err error) {
	if st, err = s.UseStore(ctx); err != nil {
		return nil, "", fmt.Errorf("read the results %s: %w", output, err)
	}
	if key, err = st.Objects.Key(output); err != nil {
		return nil, "", fmt.Errorf("read the results: %w", err)
	}
	return st, key, nil
}

// lines yields a summary's results as stored lines. Arrays are bytes only in the store.
func (s *Starter) lines(ctx context.Context, summary gpumux.Summary, arrays bool) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var st *store.Store
		var key string
		var err error
		held := summary.Output == "" || int64(len(summary.Results)) == summary.Items
		if arrays || !held {
			st, key, err = s.locate(ctx, summary.Output)
		}
		if held && (!arrays || errors.As(err, new(*NoStoreError))) {
			for _, result := range summary.Results {
				line, err := results.Append(nil, result)
				if !yield(bytes.TrimSuffix(line, []byte{'\n'}), err) {
					return
				}
			}
			return
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for line, err := range st.Lines(ctx, key) {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w; somebody deleted it, as `gpumux prune` does with old ones: run the map again", err)
			}
			if err != nil {
				err = fmt.Errorf("read the results: %w", err)
			}
			if !yield(line, err) {
				return
			}
		}
	}
}

// Kept results are written after so many items or bytes.
const (
	keptItems = 4096
	keptBytes = 4 << 20
)

// copyResults copies succeeded results beside output and returns the store's URL.
func (s *Starter) copyResults(ctx context.Context, last *Handle, output string) (string, error) {
	st, err := s.UseStore(ctx)
	if err != nil {
		return "", fmt.Errorf("its results pass through the workers' store: %w", err)
	}
	from, err := st.Folder(contract.PartsOf(last.Output))
	if err != nil {
		return "", err
	}
	to, err := st.Folder(contract.PartsOf(output))
	if err != nil {
		return "", err
	}
	kept, n, size := to.Append(), 0, 0
	for result, err := range last.Results(ctx, ReadOptions{Arrays: true}) {
		if err != nil {
			return "", err
		}
		if result.Fault != nil {
			continue
		}
		if err := from.CopyFiles(ctx, result, to); err != nil {
			return "", fmt.Errorf("keep its files: %w", err)
		}
		err = kept.Add(result)
		if n, size = n+1, size+result.Weight(); err == nil && (n%keptItems == 0 || size >= keptBytes) {
			size, err = 0, kept.Flush(ctx)
		}
		if err != nil {
			return "", fmt.Errorf("keep its results: %w", err)
		}
	}
	if err := kept.Flush(ctx); err != nil {
		return "", fmt.Errorf("keep its results: %w", err)
	}
	return st.Objects.URL(), from.KeepOwner(ctx, to)
}
