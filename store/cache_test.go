package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// cached is a store in which maps of one task run with a cache.
type cached struct {
	*Store
	t    *testing.T
	made int
}

// over claims the folder of a map over items, and says what is left to run of it.
func (c *cached) over(items string) (string, contract.Cache, contract.Found) {
	c.made++
	src, err := c.Sources.Put(c.t.Context(), spool(c.t, items))
	require.NoError(c.t, err)
	cache := contract.Cache{Owner: contract.Owner{Task: "f", Edition: "e"}, Source: &src}
	output := fmt.Sprintf("maps/%d/results.jsonl", c.made)
	return output, cache, c.find(output, cache, src.Items)
}

func (c *cached) find(output string, cache contract.Cache, items int64) contract.Found {
	found, err := c.FindParts(c.t.Context(), contract.PartsInput{Parts: contract.PartsOf(output), Items: items, Owner: contract.Owner{Items: items}, Cache: &cache})
	require.NoError(c.t, err)
	return found
}

// run gives every item that is left its own text as value. Those that end in 1 fail.
func (c *cached) run(output string, cache contract.Cache, rest contract.Work, items int64) {
	folder := contract.PartsOf(output)
	var results []gpumux.Result
	require.NoError(c.t, c.eachText(cache, rest.Runs, func(index int64, text string) {
		r := value(index, `"`+text+`"`)
		if strings.HasSuffix(text, "1") {
			r = fault(index, gpumux.FaultCrash)
		}
		results = append(results, r)
	}))
	if len(results) > 0 {
		writePart(c.t, c.Store, folder, results...)
	}
	merged, err := c.Merge(c.t.Context(), contract.MergeInput{Parts: folder, Output: output, Items: items, Cache: &cache})
	require.NoError(c.t, err)
	require.Empty(c.t, merged.Missing)
}

func (c *cached) eachText(cache contract.Cache, runs contract.Runs, f func(int64, string)) error {
	if cache.Source == nil {
		for _, run := range runs {
			for i := run.Start; i < run.End; i++ {
				f(i, fmt.Sprint(cache.Range.Start+i))
			}
		}
		return nil
	}
	return c.Sources.Pick(c.t.Context(), *cache.Source, runs, func(index int64, item json.RawMessage) bool { f(index, string(item)); return true })
}

func counting(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func TestCache_WhatWasKnownIsTaken(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		c := &cached{Store: s, t: t}
		output, cache, found := c.over(counting(0, 200))
		require.Zero(t, found.Cached)
		c.run(output, cache, found.Rest, 200)

		// 20 of the 200 failed. The others are found, in another order and twice; what is new
		// is not.
		output, cache, found = c.over(counting(198, 203) + counting(0, 198) + counting(0, 10))
		require.EqualValues(t, 180+9, found.Cached)
		require.EqualValues(t, 3+20+1, found.Rest.Len())
		c.run(output, cache, found.Rest, 213)
		var got []gpumux.Result
		for r, err := range s.Results(t.Context(), output) {
			require.NoError(t, err)
			got = append(got, r)
		}
		failed := 0
		require.NoError(t, c.eachText(cache, contract.Runs{{End: 213}}, func(index int64, text string) {
			if got[index].Fault != nil {
				failed++
			} else {
				require.Equal(t, `"`+text+`"`, string(got[index].Value))
			}
		}))
		require.Equal(t, 22, failed)

		// A map that goes on asks only for what it has not.
		require.Zero(t, c.find(output, cache, 213).Cached)

		// Other code has other results.
		cache.Owner.Edition = "other"
		require.Zero(t, c.find("maps/other/results.jsonl", cache, 213).Cached)

		// Numbers of a range are items like any others.
		cache = contract.Cache{Owner: contract.Owner{Task: "f", Edition: "e"}, Range: &gpumux.Range{Start: 195, End: 210}}
		found = c.find("maps/range/results.jsonl", cache, 15)
		require.EqualValues(t, 7, found.Cached)
		c.run("maps/range/results.jsonl", cache, found.Rest, 15)
		_, _, found = c.over(counting(204, 208))
		require.EqualValues(t, 4, found.Cached)
	})
}

// Earlier maps whose files are gone, damaged or replaced give nothing, and stop nobody.
func TestCache_LeavesOutWhatCannotBeRead(t *testing.T) {
	for what, harm := range map[string]func(c *cached, output string, cache contract.Cache){
		"gone": func(c *cached, output string, _ contract.Cache) {
			require.NoError(c.t, c.Objects.Delete(c.t.Context(), output))
		},
		"replaced": func(c *cached, output string, _ contract.Cache) {
			put(c.t, c.Store, output, strings.ToUpper(get(c.t, c.Store, output)))
		},
		"pruned": func(c *cached, _ string, cache contract.Cache) {
			require.NoError(c.t, c.Objects.Delete(c.t.Context(), cache.Source.URL))
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := &cached{Store: open(t, "mem://", nil), t: t}
			first, cache, found := c.over(counting(0, 10))
			c.run(first, cache, found.Rest, 10)
			put(t, c.Store, cacheFolder(cache)+"/noise.json", "{")
			harm(c, first, cache)
			_, _, found = c.over(counting(0, 11))
			require.Zero(t, found.Cached)
			require.Len(t, found.Skipped, 1)
			require.EqualValues(t, 11, found.Rest.Len())
		})
	}
}

func TestCache_KnowsTheNewestMaps(t *testing.T) {
	c := &cached{Store: open(t, "mem://", nil), t: t}
	var cache contract.Cache
	for i := range maxRecords + 3 {
		output, of, found := c.over(counting(100*i, 100*i+2))
		c.run(output, of, found.Rest, 2)
		output, _, found = c.over(counting(100*i, 100*i+2))
		c.run(output, of, found.Rest, 2) // the same items again take the place of those before
		cache = of
	}
	known, err := c.records(t.Context(), cache)
	require.NoError(t, err)
	require.Len(t, known, maxRecords)
	_, _, found := c.over(counting(0, 2) + counting(400, 402))
	require.EqualValues(t, 1, found.Cached, "0 is forgotten, 400 is known, and 401 failed")
}

// Files go along with a result. Where one is gone, nothing is taken that names it.
func TestCache_TakesFilesAlong(t *testing.T) {
	c := &cached{Store: open(t, "mem://", nil), t: t}
	output, cache, found := c.over("\"a\"\n\"b\"\n")
	require.Equal(t, int64(2), found.Rest.Runs.Len())
	kept := value(1, `"b"`)
	kept.Files = []string{"b.txt"}
	folder := contract.PartsOf(output)
	require.NoError(t, folderOf(c.t, c.Store, folder).KeepFile(t.Context(), 1, "b.txt", strings.NewReader("of b"), 4))
	writePart(t, c.Store, folder, value(0, `"a"`), kept)
	_, err := c.Merge(t.Context(), contract.MergeInput{Parts: folder, Output: output, Items: 2, Cache: &cache})
	require.NoError(t, err)

	output, _, found = c.over("\"b\"\n\"b\"\n\"x\"\n")
	require.Equal(t, int64(2), found.Cached)
	for index := range int64(2) {
		require.Equal(t, "of b", fileOf(t, c.Store, contract.PartsOf(output), index, "b.txt"))
	}
	require.NoError(t, c.Objects.DeleteAll(t.Context(), folder+"/files"))
	_, _, found = c.over("\"b\"\n\"y\"\n")
	require.Zero(t, found.Cached)
	require.Len(t, found.Skipped, 1)
}
