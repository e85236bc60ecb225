package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

func TestFind_CountsEachItemOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		in := contract.PartsInput{Parts: "p", Items: 10, Owner: contract.Owner{Task: "f", Items: 10}}
		found, err := s.FindParts(ctx, in)
		require.NoError(t, err)
		require.Equal(t, contract.Found{Claim: found.Claim, Stages: []contract.FoundStage{{Rest: contract.Whole(10)}}}, found)
		writePart(t, s, "p", value(0, "1"), fault(1, gpumux.FaultCrash), value(9, "1"))
		writePart(t, s, "p", value(1, "1"), fault(2, gpumux.FaultTaskError))
		put(t, s, "p/notes.txt", "not a part")
		put(t, s, "p/damaged/"+strings.Repeat("0", writerDigits)+".000000.jsonl", "looked at before")
		again, err := s.FindParts(ctx, in)
		require.NoError(t, err)
		require.Equal(t, contract.Found{Claim: found.Claim, Stages: []contract.FoundStage{{Rest: contract.Work{Runs: contract.Runs{{Start: 3, End: 9}}},
			Counts: contract.Counts{Succeeded: 2, Failed: 2, Faults: map[gpumux.FaultKind]int64{gpumux.FaultCrash: 1, gpumux.FaultTaskError: 1}}}}}, again)
		runs, err := s.Runs(ctx, "p")
		require.NoError(t, err)
		require.Equal(t, contract.Runs{{Start: 0, End: 3}, {Start: 9, End: 10}}, runs)
		runs, err = s.Runs(ctx, "none")
		require.NoError(t, err)
		require.Empty(t, runs)
		_, err = s.FindParts(ctx, contract.PartsInput{Parts: "../p", Items: 1})
		require.ErrorContains(t, err, "is not a key")
	})
}

// Items go on behind the last stage that has them. Those of a stage that follow each
// other are one run.
func TestFind_EachStageHasItsRest(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		in := contract.PartsInput{Parts: "p", Items: 10, Stages: []string{"p/1"}, Owner: contract.Owner{Task: "f", Items: 10}}
		writePart(t, s, "p/1", value(0, "1"), value(1, "1"), value(2, "1"), fault(3, gpumux.FaultCrash), value(6, "1"))
		writePart(t, s, "p", value(0, "1"), fault(6, gpumux.FaultTaskError), value(8, "1"))
		found, err := s.FindParts(t.Context(), in)
		require.NoError(t, err)
		rests := []contract.Runs{{{Start: 4, End: 6}, {Start: 7, End: 8}, {Start: 9, End: 10}}, {{Start: 1, End: 4}}}
		counts := [][2]int64{{5, 1}, {2, 1}}
		for at, stage := range found.Stages {
			require.Equal(t, rests[at], stage.Rest.Runs)
			require.Equal(t, counts[at], [2]int64{stage.Succeeded, stage.Failed})
		}
	})
}

func TestFind_RefusesItemsThatTheMapDoesNotHave(t *testing.T) {
	for _, index := range []int64{9, 10, 1 << 50} {
		s := open(t, "mem://")
		writePart(t, s, "p", value(index, "1"))
		_, err := s.FindParts(t.Context(), nine)
		var other *OwnerError
		require.ErrorAs(t, err, &other)
		require.ErrorContains(t, err, s.Objects.Locate("p")+" holds item ")
		require.ErrorContains(t, err, "there are only 9")
	}
}
