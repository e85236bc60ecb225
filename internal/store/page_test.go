package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
)

// Pages of any size come to the whole file. Each is as large as travels inline.
func TestPage_AllOfAFile(t *testing.T) { eachStore(t, testPages) }

func testPages(t *testing.T, s *Store) {
	var file strings.Builder
	for i := range 3000 {
		r := gpumux.Result{Index: int64(i), Value: json.RawMessage(fmt.Sprintf("%q", strings.Repeat("x", i%700))), Key: json.RawMessage(fmt.Sprint(i))}
		if i%100 == 7 {
			r.Value, r.Fault = nil, &gpumux.Fault{Kind: gpumux.FaultCrash}
		}
		line, err := results.Append(nil, r)
		require.NoError(t, err)
		file.Write(line)
	}
	put(t, s, "maps/a/results.jsonl", file.String())
	for _, limit := range []int{0, 100, 999, 10_000} {
		var all []gpumux.Result
		pages := 0
		for at, more := int64(0), true; more; more = at > 0 {
			page, err := s.Page(t.Context(), contract.PageInput{Output: "maps/a/results.jsonl", From: at, Limit: limit})
			require.NoError(t, err)
			weight := 0
			for _, r := range page.Results {
				weight += r.Weight()
			}
			require.LessOrEqual(t, weight, gpumux.InlineBytes)
			all, at = append(all, page.Results...), page.Next
			pages++
		}
		require.Len(t, all, 3000)
		for i, r := range all {
			require.EqualValues(t, i, r.Index)
			require.Equal(t, i%100 == 7, r.Fault != nil)
		}
		require.Equal(t, map[int]int{0: 3, 100: 30, 999: 4, 10_000: 3}[limit], pages)
	}
}

func TestPage_WhatIsNoResultsFile(t *testing.T) {
	s := open(t, "mem://")
	put(t, s, "items.jsonl", "1\n2\n")
	_, err := s.Page(t.Context(), contract.PageInput{Output: "items.jsonl"})
	require.ErrorContains(t, err, `items.jsonl: at byte 0 is no line of results: "1"; name the results file of a map`)
	put(t, s, "r.jsonl", `{"index":0,"value":1}`+"\n"+`{"index":1,"value":"`+strings.Repeat("x", largestPaged)+"\"}\n")
	_, err = s.Page(t.Context(), contract.PageInput{Output: "r.jsonl", From: 5})
	require.ErrorContains(t, err, "at byte 5 is no line of results")
	page, err := s.Page(t.Context(), contract.PageInput{Output: "r.jsonl"})
	require.NoError(t, err)
	require.Len(t, page.Results, 1)
	_, err = s.Page(t.Context(), contract.PageInput{Output: "r.jsonl", From: page.Next})
	require.ErrorContains(t, err, "the result at byte 22 has more than 1MiB; read the file itself")
	put(t, s, "empty.jsonl", "")
	page, err = s.Page(t.Context(), contract.PageInput{Output: "empty.jsonl"})
	require.NoError(t, err)
	require.Zero(t, page)
}
