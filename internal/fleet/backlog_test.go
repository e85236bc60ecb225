package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// Items of unknown length count to no time.
func TestCount(t *testing.T) {
	p := gpumux.Progress{Backlog: []gpumux.RungBacklog{{Rung: "gpu", Items: 12}, {Rung: "cpu", Items: 1}}}
	all := map[string]Backlog{}
	count(all, p)
	require.Equal(t, map[string]Backlog{"gpu": {Items: 12}, "cpu": {Items: 1}}, all)
	p.ItemTime = gpumux.Duration(1500 * time.Millisecond)
	count(all, p)
	require.Equal(t, map[string]Backlog{"gpu": {Items: 24, Seconds: 18}, "cpu": {Items: 2, Seconds: 1.5}}, all)
}
