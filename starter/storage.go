package starter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"sync"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/store"
)

// NoStoreError says why the workers' store could not be used from here.
type NoStoreError struct {
	// URL is the workers' store, when they said.
	URL string
	Err error
}

// Error says what to do.
func (e *NoStoreError) Error() string { return fmt.Sprintf("%v; give the workers' store", e.Err) }

// Unwrap gives the cause.
func (e *NoStoreError) Unwrap() error { return e.Err }

// workersStore is the workers' own store, opened when a map first needs it.
type workersStore struct {
	mu     sync.Mutex
	opened *store.Store
}

func (w *workersStore) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.opened != nil {
		_ = w.opened.Close()
		w.opened = nil
	}
}

// open opens the store if it can be the same from here. Its errors are *NoStoreError.
func (w *workersStore) open(ctx context.Context, workers *fleet.Fleet, keys store.Keys) (*store.Store, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.opened != nil {
		return w.opened, nil
	}
	offer, err := workers.Offer(ctx)
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
		w.opened, err = store.Open(ctx, url, keys)
	}
	if err != nil {
		return nil, &NoStoreError{URL: offer.Store, Err: err}
	}
	return w.opened, nil
}

// storage puts items into the store and reads results there. It opens no store before
// one is needed.
type storage struct {
	given   *store.Store // instead of the workers' own
	own     *workersStore
	workers *fleet.Fleet
	keys    store.Keys
}

func (s storage) open(ctx context.Context) (*store.Store, error) {
	if s.given != nil {
		return s.given, nil
	}
	return s.own.open(ctx, s.workers, s.keys)
}

// place puts the items where the workflow finds them and returns the URL of the store
// that takes the results, or "" when they are to travel in the summary.
func (s storage) place(ctx context.Context, m *Map) (string, error) {
	var st *store.Store
	var err error
	if !m.Inline || m.large() {
		st, err = s.open(ctx)
	}
	if err != nil && m.large() {
		return "", fmt.Errorf("%d items (%s) of this map go through the workers' store: %w",
			m.Spooled.Items, gpumux.Size(m.Spooled.Bytes), err)
	}
	switch {
	case m.Spooled == nil:
	case m.Spooled.Items == 0:
		m.Input.Range, m.Input.Key = &gpumux.Range{}, "" // no result lacks it
	case m.large():
		src, err := st.Sources.Put(ctx, m.Spooled)
		if err != nil {
			return "", fmt.Errorf("put the items into store %s: %w", st.Objects.URL(), err)
		}
		if m.Input.Source = src.URL; m.Spooled.Values {
			m.Input.Source = gpumux.ValuesOf(src.URL)
		}
	default:
		if m.Input.Items, err = m.Spooled.All(); err != nil {
			return "", fmt.Errorf("read the items back: %w", err)
		}
	}
	if st == nil {
		return "", nil
	}
	return st.Objects.URL(), nil
}

// locate finds a results file by its key or URL.
func (s storage) locate(ctx context.Context, output string) (st *store.Store, key string, err error) {
	if st, err = s.open(ctx); err != nil {
		return nil, "", fmt.Errorf("read the results %s: %w", output, err)
	}
	if key, err = st.Objects.Key(output); err != nil {
		return nil, "", fmt.Errorf("read the results: %w", err)
	}
	return st, key, nil
}

// each gives the results that a summary holds or names, as stored lines.
func (s storage) each(ctx context.Context, summary gpumux.Summary, give func(line []byte) error) error {
	if summary.Output == "" {
		for _, result := range summary.Results {
			line, err := results.Append(nil, result)
			if err == nil {
				err = give(bytes.TrimSuffix(line, []byte{'\n'}))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	st, key, err := s.locate(ctx, summary.Output)
	if err != nil {
		return err
	}
	file, err := st.Objects.Read(ctx, key, 0, -1)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; somebody deleted it, as `gpumux prune` does with old ones: run the map again", err)
	}
	if err != nil {
		return fmt.Errorf("read the results: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 256<<10), math.MaxInt)
	for lines.Scan() {
		if err := give(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the results %s: %w", summary.Output, err)
	}
	return nil
}

// Limits on one part of kept results.
const (
	keptItems = 1000
	keptBytes = 4 << 20
)

// copyResults copies succeeded results beside output and returns the store's URL.
func (s storage) copyResults(ctx context.Context, summary gpumux.Summary, output string) (string, error) {
	st, err := s.open(ctx)
	if err != nil {
		return "", fmt.Errorf("its results pass through the workers' store: %w", err)
	}
	from, err := st.Folder(contract.PartsOf(summary.Output))
	if err != nil {
		return "", err
	}
	to, err := st.Folder(contract.PartsOf(output))
	if err != nil {
		return "", err
	}
	var batch []gpumux.Result
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := st.WritePart(ctx, contract.PartsOf(output), batch); err != nil {
			return fmt.Errorf("keep its results: %w", err)
		}
		batch, size = batch[:0], 0
		return nil
	}
	stored := linesOf(true, func(give func([]byte) error) error { return s.each(ctx, summary, give) })
	for result, err := range parsed(stored, results.ParseStored) {
		if err != nil {
			return "", err
		}
		if result.Fault != nil {
			continue
		}
		if err := from.CopyFiles(ctx, result, to, result.Index); err != nil {
			return "", fmt.Errorf("keep its files: %w", err)
		}
		batch = append(batch, result)
		if size += result.Weight(); len(batch) == keptItems || size >= keptBytes {
			if err := flush(); err != nil {
				return "", err
			}
		}
	}
	if err := flush(); err != nil {
		return "", err
	}
	return st.Objects.URL(), from.KeepOwner(ctx, to)
}
