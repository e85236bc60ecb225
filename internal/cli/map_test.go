package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func TestMap_OptionsOtherThanTheMapsOwn(t *testing.T) {
	own := gpumux.MapInput{Ladder: []string{"cpu"}, Attempts: 3, Timeout: gpumux.Duration(time.Minute), FailFast: true}
	require.Empty(t, otherThan(own, gpumux.MapInput{Attempts: 1}), "what was not given differs from nothing")
	require.Empty(t, otherThan(own, own))
	ladder := []string{"gpu", "cpu"}
	require.Equal(t, []string{"--pool", "--patience", "--mode", "--chunk", "--window", "--timeout", "--attempts", "--reduce", "--key", "--with-item", "--priority", "--fairness-key"},
		otherThan(own, gpumux.MapInput{Ladder: ladder, Patience: 5, Mode: gpumux.Fresh, Timeout: 1, Attempts: 2, Key: "id", WithItem: true, Reduce: "sum", Chunk: 2, Window: 3,
			Priority: 1, FairnessKey: "a"}))
	require.Equal(t, []string{"--fail-fast"}, otherThan(gpumux.MapInput{Ladder: ladder}, gpumux.MapInput{Ladder: ladder, FailFast: true}))
}
