package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// damages are what can happen to the part of items 3 to 5.
var damages = map[string]func(text string) string{
	"a value changed":      func(text string) string { return strings.Replace(text, `"value":"four"`, `"value":"fuor"`, 1) },
	"the checksum changed": func(text string) string { return strings.Replace(text, `"crc32c":"`, `"crc32c":"x`, 1) },
	"the most changed":     func(text string) string { return strings.Replace(text, `"most":5`, `"most":1`, 1) },
	"cut off in a line":    func(text string) string { return text[:len(text)-5] },
	"cut off in the head":  func(text string) string { return text[:50] },
	"empty":                func(string) string { return "" },
	"a line twice": func(text string) string {
		lines := strings.SplitAfter(text, "\n")
		return strings.Join(append(lines, lines[len(lines)-2]), "")
	},
	"another file": func(string) string { return strings.Repeat("what is this?\n", 50) },
}

// eachDamage runs a test on every kind of store. It has parts of items 0 to 2, 3 to 5 and
// 6 to 8; the second is damaged.
func eachDamage(t *testing.T, test func(t *testing.T, s *Store, damaged string)) {
	for name, change := range damages {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *Store) {
				writePart(t, s, "p", resultsWith(0, 1, 2)...)
				part := writePart(t, s, "p", value(3, "3"), value(4, `"four"`), fault(5, gpumux.FaultCrash))
				writePart(t, s, "p", resultsWith(6, 7, 8)...)
				text := get(t, s, part.key("p"))
				changed := change(text)
				require.NotEqual(t, text, changed)
				put(t, s, part.key("p"), changed)
				test(t, s, part.String())
				require.Equal(t, changed, get(t, s, "p/damaged/"+part.String()), "it stays for people to look at")
				exists, err := s.Objects.Exists(t.Context(), part.key("p"))
				require.NoError(t, err)
				require.False(t, exists)
			})
		})
	}
}

var nine = contract.PartsInput{Parts: "p", Items: 9, Owner: contract.Owner{Task: "f", Input: "range 0 to 9", Items: 9}}

// mends runs the missing items again and merges.
func mends(t *testing.T, s *Store) {
	writePart(t, s, "p", resultsWith(3, 4, 5)...)
	found, err := s.FindParts(t.Context(), nine)
	require.NoError(t, err)
	require.Empty(t, found.Damaged)
	require.Zero(t, found.Stages[0].Rest.Len())
	merged, err := s.Merge(t.Context(), contract.MergeInput{Parts: "p", Output: "out", Items: 9, Claim: found.Claim})
	require.NoError(t, err)
	require.Empty(t, merged.Missing)
	require.EqualValues(t, 9, merged.Succeeded)
	require.Equal(t, 9, strings.Count(get(t, s, "out"), "\n"))
}

func TestFind_SetsADamagedPartAside(t *testing.T) {
	eachDamage(t, func(t *testing.T, s *Store, damaged string) {
		found, err := s.FindParts(t.Context(), nine)
		require.NoError(t, err)
		require.Len(t, found.Damaged, 1)
		require.Contains(t, found.Damaged[0], "part "+s.Objects.Locate("p/"+damaged)+" is damaged: ")
		require.Equal(t, contract.Work{Runs: contract.Runs{{Start: 3, End: 6}}}, found.Stages[0].Rest)
		require.EqualValues(t, 6, found.Stages[0].Succeeded)
		require.Zero(t, found.Stages[0].Failed)
		mends(t, s)
	})
}

func TestMerge_SetsADamagedPartAside(t *testing.T) {
	eachDamage(t, func(t *testing.T, s *Store, damaged string) {
		put(t, s, "out", "before")
		merged, err := s.Merge(t.Context(), contract.MergeInput{Parts: "p", Output: "out", Items: 9})
		require.NoError(t, err)
		require.Empty(t, merged.Output)
		require.Contains(t, merged.Missing, "item 3 has no result")
		require.Contains(t, merged.Missing, "part "+s.Objects.Locate("p/"+damaged)+" is damaged: ")
		require.Equal(t, "before", get(t, s, "out"))
		mends(t, s)
	})
}

func TestSince_SetsADamagedPartAside(t *testing.T) {
	eachDamage(t, func(t *testing.T, s *Store, damaged string) {
		name, ok := parsePart(damaged)
		require.True(t, ok)
		found, count := since(t, s, "p", Position{Writer: name.writer})
		require.Equal(t, 1, count)
		require.Empty(t, found, "what lies in a damaged part runs again, all of it")
		mends(t, s)
	})
}

func TestTail_PassesOverADamagedPart(t *testing.T) {
	eachDamage(t, func(t *testing.T, s *Store, damaged string) {
		ordered := folderOf(t, s, "p").Tail(false)
		unordered := folderOf(t, s, "p").Tail(true)
		require.Equal(t, []int64{0, 1, 2}, taken(t, ordered))
		require.Equal(t, []int64{0, 1, 2, 6, 7, 8}, taken(t, unordered))
		require.Empty(t, taken(t, ordered))
		require.Empty(t, taken(t, unordered))
		_, err := s.FindParts(t.Context(), nine) // as a map does when it goes on
		require.NoError(t, err)
		mends(t, s)
		require.Equal(t, []int64{3, 4, 5, 6, 7, 8}, taken(t, ordered))
		require.Equal(t, []int64{3, 4, 5}, taken(t, unordered))
	})
}

// The items of a deleted part run again. Other parts of its writer still count.
func TestFind_ADeletedPartRunsAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		part := writePart(t, s, "p", resultsWith(3, 4, 5)...)
		writePart(t, s, "p", resultsWith(0, 1, 2, 6, 7, 8)...)
		tail := folderOf(t, s, "p").Tail(false)
		require.Len(t, taken(t, tail), 9)
		require.NoError(t, s.Objects.Delete(t.Context(), part.key("p")))
		results, _ := since(t, s, "p", Position{Writer: part.writer})
		require.Empty(t, results)
		merged, err := s.Merge(t.Context(), contract.MergeInput{Parts: "p", Output: "out", Items: 9})
		require.NoError(t, err)
		require.Equal(t, "item 3 has no result in p", merged.Missing)
		found, err := s.FindParts(t.Context(), nine)
		require.NoError(t, err)
		require.Empty(t, found.Damaged)
		require.Equal(t, contract.Runs{{Start: 3, End: 6}}, found.Stages[0].Rest.Runs)
		mends(t, s)
		require.Empty(t, taken(t, tail), "each item once")
	})
}

func TestFind_NamesAFewOfManyDamagedParts(t *testing.T) {
	s := open(t, "mem://")
	for i := range int64(9) {
		part := writePart(t, s, "p", value(i, "1"))
		text := get(t, s, part.key("p"))
		if i%2 == 0 {
			text = text[:100]
		} else {
			text = strings.Replace(text, `"value":1`, `"value":2`, 1)
		}
		put(t, s, part.key("p"), text)
	}
	found, err := s.FindParts(t.Context(), nine)
	require.NoError(t, err)
	require.Len(t, found.Damaged, maxDamaged+1)
	require.Equal(t, "and 4 more", found.Damaged[maxDamaged])
	require.Equal(t, contract.Whole(9), found.Stages[0].Rest)
}

// A part of a newer version is not damaged. It stays, and an older version says that it
// cannot read it.
func TestPart_ANewerVersionStays(t *testing.T) {
	s := open(t, "mem://")
	require.NoError(t, s.WritePart(t.Context(), "p", []gpumux.Result{value(3, "1")}))
	names, err := folderOf(t, s, "p").names(t.Context())
	require.NoError(t, err)
	key := names[0].key("p")
	put(t, s, key, strings.Replace(get(t, s, key), `"part":1`, `"part":7`, 1))
	_, err = s.FindParts(t.Context(), contract.PartsInput{Parts: "p", Items: 5})
	require.ErrorContains(t, err, "is of version 7, this gpumux reads version 1;")
	names, err = folderOf(t, s, "p").names(t.Context())
	require.NoError(t, err)
	require.Len(t, names, 1)
}
