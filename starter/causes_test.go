package starter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func TestCauses_AreFewForManyFailures(t *testing.T) {
	var c Causes
	add := func(index int64, kind gpumux.FaultKind, class, message string) {
		c.Add(gpumux.Result{Index: index, Fault: &gpumux.Fault{Kind: kind, Class: class, Message: message}})
	}
	for i := range int64(237) {
		switch {
		case i%10 == 0:
			add(i, gpumux.FaultTimeout, "", fmt.Sprintf("no result after %d.%ds", i, i))
		case i%3 == 0:
			add(i, gpumux.FaultTaskError, "ValueError", fmt.Sprintf("invalid literal for int() with base 10: 'a%d'", i))
		default:
			add(i, gpumux.FaultTaskError, "KeyError", fmt.Sprintf("\"k%d\" of <Row at 0x7f%x> in 3fa92c01d4e%d", i, i, i))
		}
	}
	c.Add(gpumux.Result{Index: 500})
	causes := c.Sorted()
	require.Len(t, causes, 3)
	require.Equal(t, []int64{142, 71, 24}, []int64{causes[0].Count, causes[1].Count, causes[2].Count})
	require.EqualValues(t, 1, causes[0].Example.Index)
	require.EqualValues(t, 0, causes[2].Example.Index)
}

// What is not alike stays apart, and their number is bounded.
func TestCauses_AreToldApart(t *testing.T) {
	var c Causes
	for _, f := range []gpumux.Fault{
		{Kind: gpumux.FaultTaskError, Class: "ValueError", Message: "x"}, {Kind: gpumux.FaultTaskError, Class: "TypeError", Message: "x"},
		{Kind: gpumux.FaultCrash, Class: "ValueError", Message: "x"}, {Kind: gpumux.FaultTaskError, Class: "ValueError", Message: "decade"},
		{Kind: gpumux.FaultTaskError, Class: "ValueError", Message: "x", Task: "another stage"},
		{Kind: gpumux.FaultCrash, Message: "ended", Exit: "signal SIGSEGV"}, {Kind: gpumux.FaultCrash, Message: "ended", Exit: "signal SIGABRT"},
	} {
		c.Add(gpumux.Result{Fault: &f})
	}
	require.Len(t, c.Sorted(), 7)
	for i := range maxCauses {
		c.Add(gpumux.Result{Fault: &gpumux.Fault{Kind: gpumux.FaultCrash, Class: fmt.Sprintf("C%dx%s", i, string(rune('a'+i)))}})
	}
	require.Len(t, c.Sorted(), maxCauses)
	require.EqualValues(t, 7+maxCauses, c.Count)
}

// Each cause says where it happened.
func TestCauses_Places(t *testing.T) {
	var c Causes
	for i, slot := range []string{"gpu/0", "gpu/1", "gpu/4", "big/0", ""} {
		device := []string{"GPU-a", "GPU-b", "GPU-b", "GPU-b", ""}[i]
		c.Add(gpumux.Result{Index: int64(i), Fault: &gpumux.Fault{Kind: gpumux.FaultCrash, Slot: slot, Device: device, Host: "n1"}})
	}
	cause := c.Sorted()[0]
	require.Len(t, c.Sorted(), 1)
	require.EqualValues(t, 5, c.Count)
	require.Equal(t, gpumux.FaultCrash, cause.Kind)
	require.EqualValues(t, 5, cause.Count)
	require.Zero(t, cause.Example.Index)
	require.Equal(t, map[string]int64{"gpu on GPU-b of n1": 2, "gpu on GPU-a of n1": 1, "big on GPU-b of n1": 1}, cause.Places)
}
