package slot_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/slot"
)

func TestSlot_AnExceptionIsTheItemsFault(t *testing.T) {
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		s, dir := newSlot(t), folder(t)
		got, err := run(t, s, python(dir, "fail_on_3"), slot.Call{Call: calls.Call{Mode: mode}, Work: work(ints(6)...)})
		require.NoError(t, err)
		require.Len(t, got, 6)
		for i, d := range got {
			if i != 3 {
				require.Equal(t, strconv.Itoa(i), string(d.Value))
				continue
			}
			require.Equal(t, gpumux.FaultTaskError, d.Fault.Kind)
			require.Equal(t, "ValueError", d.Fault.Class)
			require.Equal(t, "three is not allowed", d.Fault.Message)
			require.Contains(t, d.Fault.Traceback, "fail_on_3")
			require.Equal(t, "cpu/0", d.Fault.Slot)
			require.Equal(t, 1, d.Fault.Attempts)
		}
	}
}

func TestSlot_AttemptsTryAnExceptionAgain(t *testing.T) {
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		s, dir := newSlot(t), folder(t)
		got, err := run(t, s, python(dir, "flaky"), slot.Call{Call: calls.Call{Mode: mode, Attempts: 3}, Work: work(filepath.Join(dir, "n"))})
		require.NoError(t, err)
		require.Nil(t, got[0].Fault, "%v", got[0].Fault)
		require.True(t, strings.HasPrefix(string(got[0].Value), "[3,"))
		got, err = run(t, s, python(dir, "flaky"), slot.Call{Call: calls.Call{Mode: mode, Attempts: 2}, Work: work(filepath.Join(dir, "m"))})
		require.NoError(t, err)
		require.Equal(t, "try 2", got[0].Fault.Message)
		require.Equal(t, 2, got[0].Fault.Attempts)
		for name, tried := range map[string]int{"ValueError": 1, "Exception": 2} {
			call := calls.Call{Mode: mode, Attempts: 2, RetryOn: []string{name}}
			got, err = run(t, s, python(dir, "flaky"), slot.Call{Call: call, Work: work(filepath.Join(dir, name))})
			require.NoError(t, err)
			require.Equal(t, []any{tried, tried == 1}, []any{got[0].Fault.Attempts, got[0].Fault.Final}, "%s %s", mode, name)
		}
	}
}
