package store

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

// eachStore runs a test on a folder, in memory and over S3.
func eachStore(t *testing.T, test func(t *testing.T, s *Store)) {
	for name, url := range map[string]func(t *testing.T) string{
		"file": func(t *testing.T) string { return "file://" + t.TempDir() + "/store" },
		"mem":  func(*testing.T) string { return "mem://" },
		"s3":   func(t *testing.T) string { return s3test.New(t).URL("") },
		"prefix": func(t *testing.T) string {
			return s3test.New(t).URL("&prefix=team/a&request_checksum_calculation=when_supported")
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t, url(t))) })
	}
}

func open(t testing.TB, url string) *Store {
	s, err := Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func put(t testing.TB, s *Store, key, content string) {
	w, err := s.Objects.Create(t.Context(), key, objects.Creation{Reserved: true})
	require.NoError(t, err)
	_, err = io.WriteString(w, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
}

func get(t testing.TB, s *Store, name string) string {
	r, err := s.Objects.Read(t.Context(), name, 0, -1)
	require.NoError(t, err)
	defer r.Close()
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(data)
}

func folderOf(t testing.TB, s *Store, name string) *Folder {
	t.Helper()
	f, err := s.Folder(name)
	require.NoError(t, err)
	return f
}

var parseResult, parseStored, plainLine = results.Parse, results.ParseStored, results.Plain

func (p partName) key(folder string) string { return folder + "/" + p.String() }

func readHead(t testing.TB, s *Store, key string) (partHead, error) {
	return parsePartHead([]byte(get(t, s, key)[:headBytes]))
}

// WritePart stores results, in any order, as a part of their own in a folder.
func (s *Store) WritePart(ctx context.Context, folder string, all []gpumux.Result) error {
	f, err := s.Folder(folder)
	if err != nil {
		return err
	}
	a := f.Append()
	for _, r := range all {
		if err := a.Add(r); err != nil {
			return err
		}
	}
	return a.Flush(ctx)
}

// Runs returns all items that have a result in a folder.
func (s *Store) Runs(ctx context.Context, folder string) (runs contract.Runs, err error) {
	f, err := s.Folder(folder)
	if err != nil {
		return nil, err
	}
	for line, err := range f.Tail(true).Lines(ctx, nil) {
		if err != nil {
			return nil, err
		}
		outcome, err := results.ParseOutcome(line)
		if err != nil {
			return nil, err
		}
		runs.Add(outcome.Index)
	}
	return runs, nil
}
