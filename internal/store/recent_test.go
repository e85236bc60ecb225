package store

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// valuesOf reads the values of items that a writer has written, by index.
func valuesOf(t *testing.T, f *Folder, a *Appender, runs contract.Runs) map[int64]string {
	t.Helper()
	found := map[int64]string{}
	where := []contract.Written{{Writer: a.name.writer, Last: contract.Unknown}}
	err := f.Values(t.Context(), runs, where, func(r gpumux.Result) error {
		require.NotContains(t, found, r.Index)
		if found[r.Index] = string(r.Value); r.Fault != nil {
			found[r.Index] = string(r.Fault.Kind)
		}
		return nil
	}, func(err error) { t.Error(err) })
	require.NoError(t, err)
	return found
}

func TestRecent_ValuesThatThisProcessStoredAreNotReadBack(t *testing.T) {
	s := open(t, "mem://")
	f := folderOf(t, s, "p")
	a := f.Append()
	a.Feeds = true
	for _, r := range []gpumux.Result{value(0, "1"), fault(1, gpumux.FaultCrash), value(3, "3")} {
		require.NoError(t, a.Add(r))
	}
	all := contract.Runs{{Start: 0, End: 5}}
	require.Empty(t, valuesOf(t, f, a, all), "not stored, so not there")
	require.NoError(t, a.Flush(t.Context()))
	require.Empty(t, valuesOf(t, folderOf(t, s, "q"), a, all))
	require.Equal(t, map[int64]string{0: "1"}, valuesOf(t, f, a, all[:1].Without(contract.Runs{{Start: 1, End: 5}})))
	require.Equal(t, map[int64]string{0: "1", 1: "crash", 3: "3"}, valuesOf(t, f, a, all), "one of the store, one remembered")

	require.NoError(t, a.Add(value(4, "4")))
	require.NoError(t, a.Add(fault(2, gpumux.FaultCrash)))
	require.NoError(t, a.Flush(t.Context()))
	require.NoError(t, s.Objects.DeleteAll(t.Context(), f.key))
	require.Equal(t, map[int64]string{4: "4"}, valuesOf(t, f, a, all), "a fault may be another process's value by now")
	require.Empty(t, valuesOf(t, f, a, all), "the next stage reads each once")

	again := f.Append()
	again.Feeds = true
	require.NoError(t, again.Add(value(3, "33")))
	require.NoError(t, again.Flush(t.Context()))
	require.Equal(t, map[int64]string{3: "33"}, valuesOf(t, f, again, contract.Runs{{Start: 3, End: 5}}))
}

func TestRecent_WhatWasNotStoredIsNotRemembered(t *testing.T) {
	s := open(t, "file://"+t.TempDir())
	f := folderOf(t, s, "p")
	a := f.Append()
	a.Feeds = true
	require.NoError(t, a.Add(value(0, "1")))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, a.Flush(ended))
	require.Empty(t, valuesOf(t, f, a, contract.Runs{{Start: 0, End: 1}}))
	require.NoError(t, a.Flush(t.Context()))
	require.Len(t, valuesOf(t, f, a, contract.Runs{{Start: 0, End: 1}}), 1)
}

func TestRecent_IsBounded(t *testing.T) {
	s := open(t, "file://"+t.TempDir())
	f := folderOf(t, s, "p")
	a := f.Append()
	a.Feeds = true
	const each, items = 1 << 20, 2 * recentBytes >> 20
	big := json.RawMessage(`"` + strings.Repeat("x", each) + `"`)
	for i := range int64(items) {
		require.NoError(t, a.Add(gpumux.Result{Index: i, Value: big}))
		require.NoError(t, a.Flush(t.Context()))
	}
	c := &s.recent
	require.Len(t, c.stored, len(c.values))
	require.LessOrEqual(t, c.bytes, recentBytes)
	require.Greater(t, c.bytes, recentBytes-2*each)
	require.NotContains(t, c.values, place{f.key, 0})
	require.Contains(t, c.values, place{f.key, items - 1})
	require.Len(t, valuesOf(t, f, a, contract.Runs{{Start: 0, End: items}}), items, "the others are read")
	require.Empty(t, c.values)
}

// What another process takes stays at the front, and what is taken here behind it.
func TestRecent_IsBoundedBehindAValueThatNobodyTakes(t *testing.T) {
	c := recent{values: map[place]gpumux.Result{}}
	c.put("f", []gpumux.Result{value(0, "1")})
	for i := range int64(2 * recentBytes / entryBytes) {
		c.put("f", []gpumux.Result{value(i+1, "1")})
		left, err := c.take("f", contract.Runs{{Start: i + 1, End: i + 2}}, func(gpumux.Result) error { return nil })
		require.NoError(t, err)
		require.Empty(t, left)
	}
	require.LessOrEqual(t, len(c.stored), recentBytes/entryBytes)
	require.Empty(t, c.values)
}
