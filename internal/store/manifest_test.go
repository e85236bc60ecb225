package store

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

func TestClaim_TheSameOwnerGoesOn(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		first, err := s.FindParts(t.Context(), nine)
		require.NoError(t, err)
		again, err := s.FindParts(t.Context(), nine)
		require.NoError(t, err)
		require.Equal(t, first.Claim, again.Claim)
		require.NotEmpty(t, first.Claim.ID)
		require.NotEmpty(t, first.Claim.Store)
		require.Equal(t, s.Objects.URL(), first.Claim.StoreURL)
		require.NoError(t, folderOf(t, s, "p").CheckOwner(t.Context(), first.Claim))

		other := nine
		other.Parts = "q"
		elsewhere, err := s.FindParts(t.Context(), other)
		require.NoError(t, err)
		require.NotEqual(t, first.Claim.ID, elsewhere.Claim.ID)
		require.Equal(t, first.Claim.Store, elsewhere.Claim.Store)
	})
}

func TestClaim_AnotherOwnerIsNamed(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		in := contract.PartsInput{Parts: "p", Items: 9, Owner: contract.Owner{Task: "label", Edition: "e1", Input: "range 0 to 9", Items: 9}}
		_, err := s.FindParts(t.Context(), in)
		require.NoError(t, err)
		writePart(t, s, "p", resultsWith(0)...)
		for want, change := range map[string]func(*contract.Owner){
			"task other (edition e1) over 9 items of range 0 to 9": func(o *contract.Owner) { o.Task = "other" },
			"task label (edition e2) over 9 items of range 0 to 9": func(o *contract.Owner) { o.Edition = "e2" },
			"task label (edition e1) over 9 items of range 1 to 9": func(o *contract.Owner) { o.Input = "range 1 to 9" },
			"task label (edition e1) over 8 items of range 0 to 9": func(o *contract.Owner) { o.Items = 8 },
		} {
			other := in
			change(&other.Owner)
			_, err := s.FindParts(t.Context(), other)
			var owner *OwnerError
			require.ErrorAs(t, err, &owner)
			require.ErrorContains(t, err, s.Objects.Locate("p")+" holds the results of task label (edition e1) over 9 items of range 0 to 9")
			require.ErrorContains(t, err, "this map is "+want)
			require.ErrorContains(t, err, "give another output or ID, or delete that folder")
			require.Equal(t, other.Owner.Edition == "e2", strings.Contains(err.Error(), `or give the edition "any"`))
		}
		found, err := s.FindParts(t.Context(), in)
		require.NoError(t, err)
		require.EqualValues(t, 1, found.Stages[0].Succeeded, "nothing was lost")
	})
}

// A map that takes any edition goes on from results of one. Then the folder holds results
// of several, and no map with one edition goes on from them.
func TestClaim_OfAnyEdition(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		in := contract.PartsInput{Parts: "p", Items: 9, Owner: contract.Owner{Task: "label", Edition: "e1", Input: "range 0 to 9", Items: 9}}
		first, err := s.FindParts(t.Context(), in)
		require.NoError(t, err)
		writePart(t, s, "p", resultsWith(0)...)
		free := in
		free.Owner.Edition, free.Owner.Task = gpumux.AnyEdition, "other"
		_, err = s.FindParts(t.Context(), free)
		require.ErrorContains(t, err, "this map is task other (edition any)", "all else must be the same")
		free.Owner.Task = in.Owner.Task
		for range 2 {
			found, err := s.FindParts(t.Context(), free)
			require.NoError(t, err)
			require.EqualValues(t, 1, found.Stages[0].Succeeded)
			require.Equal(t, first.Claim, found.Claim)
		}
		_, err = s.FindParts(t.Context(), in)
		require.ErrorContains(t, err, "holds the results of task label (edition any)")
		require.ErrorContains(t, err, `or give the edition "any"`)
	})
}

// A file cannot replace a folder, which would be noticed only when all items have run.
func TestClaim_OfAFolder(t *testing.T) {
	s := open(t, "file://"+t.TempDir())
	put(t, s, "done/results.jsonl", "")
	in := nine
	in.Parts = contract.PartsOf("done")
	_, err := s.FindParts(t.Context(), in)
	var owner *OwnerError
	require.ErrorAs(t, err, &owner)
	require.ErrorContains(t, err, "/done is a folder of the store; name a file in it")
	in.Parts = contract.PartsOf("done/results.jsonl")
	_, err = s.FindParts(t.Context(), in)
	require.NoError(t, err)
}

func TestClaim_ThatIsNoManifest(t *testing.T) {
	s := open(t, "mem://")
	for _, text := range []string{"", "x", "{}", `{"manifest":2}`, "null"} {
		put(t, s, "p/manifest.json", text)
		_, err := s.FindParts(t.Context(), nine)
		var owner *OwnerError
		require.ErrorAs(t, err, &owner, text)
		require.ErrorContains(t, err, "mem:///p/manifest.json is no manifest of this version")
	}
}

// When many claim a folder at once, one wins, and all learn which.
func TestClaim_Concurrently(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		const n = 16
		claims, errs := make([]contract.Claim, n), make([]error, n)
		var wait sync.WaitGroup
		for i := range n {
			wait.Go(func() {
				in := nine
				in.Owner.Task = []string{"f", "g"}[i%2]
				found, err := s.FindParts(t.Context(), in)
				claims[i], errs[i] = found.Claim, err
			})
		}
		wait.Wait()
		winner, losers := "", 0
		for i, err := range errs {
			if err != nil {
				var owner *OwnerError
				require.ErrorAs(t, err, &owner)
				losers++
				continue
			}
			if winner == "" {
				winner = claims[i].ID
			}
			require.Equal(t, winner, claims[i].ID)
		}
		require.Equal(t, n/2, losers)
	})
}

func TestClaim_OnAServerWithoutConditions(t *testing.T) {
	server := s3test.New(t)
	server.RefuseConditions()
	s := open(t, server.URL(""))
	first, err := s.FindParts(t.Context(), nine)
	require.NoError(t, err)
	again, err := open(t, server.URL("")).FindParts(t.Context(), nine)
	require.NoError(t, err)
	require.Equal(t, first.Claim, again.Claim)
	other := nine
	other.Owner.Task = "other"
	_, err = s.FindParts(t.Context(), other)
	var owner *OwnerError
	require.ErrorAs(t, err, &owner)
}

// Another host may have another folder at the same path, or none.
func TestOpenSame(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "my däta")
	address := (&url.URL{Scheme: "file", Path: folder}).String()
	here := open(t, address)
	id, err := here.Identity(t.Context())
	require.NoError(t, err)
	same, err := OpenSame(t.Context(), address, id)
	require.NoError(t, err)
	require.NoError(t, same.Close())
	apart := t.TempDir()
	_, err = OpenSame(t.Context(), "file://"+apart, id)
	require.ErrorContains(t, err, "mount the same one at this path")
	entries, err := os.ReadDir(apart)
	require.NoError(t, err)
	require.Empty(t, entries)
	other := open(t, "file://"+apart)
	_, err = other.Identity(t.Context())
	require.NoError(t, err)
	_, err = OpenSame(t.Context(), "file://"+apart, id)
	require.ErrorContains(t, err, "mount the same one at this path")
	none := filepath.Join(t.TempDir(), "none")
	_, err = OpenSame(t.Context(), "file://"+none, id)
	require.ErrorContains(t, err, "mount the same one at this path")
	require.NoDirExists(t, none)
}

// A store is the same under another URL. Other stores are refused, whatever their URL.
func TestIdentity(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""))
	found, err := s.FindParts(t.Context(), nine)
	require.NoError(t, err)
	renamed := open(t, server.URL("&use_path_style=true"))
	require.NotEqual(t, s.Objects.URL(), renamed.Objects.URL())
	require.NoError(t, folderOf(t, renamed, "p").CheckOwner(t.Context(), found.Claim))
	for _, other := range []*Store{open(t, server.URL("&prefix=a")), open(t, "file://"+t.TempDir()), open(t, "mem://")} {
		err := folderOf(t, other, "p").CheckOwner(t.Context(), found.Claim)
		var owner *OwnerError
		require.ErrorAs(t, err, &owner)
		require.ErrorContains(t, err, "this worker keeps results in "+other.Objects.URL())
		require.ErrorContains(t, err, "the map's lie in "+s.Objects.URL())
		_, err = other.Merge(t.Context(), contract.MergeInput{Parts: "p", Output: "out", Items: 0, Claim: found.Claim})
		require.ErrorAs(t, err, &owner)
	}
	require.NoError(t, folderOf(t, s, "p").CheckOwner(t.Context(), contract.Claim{}), "a chunk without a claim")
}

// Two hosts with a folder each, which have the same URL, are told apart, and the message
// says what differs.
func TestHolds_AnotherStoreOfTheSameURL(t *testing.T) {
	first, second := open(t, "mem://"), open(t, "mem://")
	found, err := first.FindParts(t.Context(), nine)
	require.NoError(t, err)
	err = folderOf(t, second, nine.Parts).CheckOwner(t.Context(), found.Claim)
	var owner *OwnerError
	require.ErrorAs(t, err, &owner)
	require.ErrorContains(t, err, "this worker finds nothing of the map in its store mem://")
	require.ErrorContains(t, err, "a folder that each host has for itself")
}

// Results that are kept for a retry stay those of the same items; the code and all else
// may change.
func TestClaim_OfKeptResults(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		in := contract.PartsInput{Parts: "p", Items: 9, Owner: contract.Owner{Task: "label", Edition: "e1", Input: "x.jsonl, content 1", Items: 9}}
		first, err := s.FindParts(t.Context(), in)
		require.NoError(t, err)
		require.NoError(t, folderOf(t, s, "none").KeepOwner(t.Context(), folderOf(t, s, "r")))
		for _, to := range []string{"q", "r"} {
			writePart(t, s, to, resultsWith(0)...)
			require.NoError(t, folderOf(t, s, "p").KeepOwner(t.Context(), folderOf(t, s, to)))
		}
		later := in
		later.Parts, later.Owner.Edition = "q", "e2"
		found, err := s.FindParts(t.Context(), later)
		require.NoError(t, err)
		require.EqualValues(t, 1, found.Stages[0].Succeeded)
		require.NotEqual(t, first.Claim.ID, found.Claim.ID)
		again, err := s.FindParts(t.Context(), later)
		require.NoError(t, err)
		require.Equal(t, found.Claim, again.Claim)
		later.Owner.Edition = "e3"
		_, err = s.FindParts(t.Context(), later)
		require.ErrorContains(t, err, "(edition e2)", "it has its own owner now")

		later.Parts, later.Owner.Input = "r", "x.jsonl, content 2"
		_, err = s.FindParts(t.Context(), later)
		require.ErrorContains(t, err, "the results that are kept are of x.jsonl, content 1, and now it is x.jsonl, content 2")
	})
}
