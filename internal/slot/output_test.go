package slot_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
)

func TestSlot_OutputStandsUnderItsItem(t *testing.T) {
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		s, dir := newSlot(t), folder(t)
		got, err := run(t, s, python(dir, "hello"), calls.Call{Mode: mode, Items: values(ints(20)...)})
		require.NoError(t, err)
		for i, d := range got {
			require.Equal(t, fmt.Sprintf("hello %d\nraw %d\nchild %d\nINFO root: logged %d\n", i, i, i, i), d.Printed)
		}
	}
}

func TestSlot_EndlessOutputIsCutInTheMiddle(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	got, err := run(t, s, python(dir, "flood"), calls.Call{Items: values(1000, 0)})
	require.NoError(t, err)
	require.Less(t, len(got[0].Printed), 20<<10)
	require.Contains(t, got[0].Printed, "bytes left out")
	require.Empty(t, got[1].Printed)
}
