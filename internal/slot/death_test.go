package slot_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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
	}
}

// After every death the slot names the fault and runs the next item.
func TestSlot_EveryDeathIsNamed(t *testing.T) {
	for how, want := range map[string]struct {
		kind gpumux.FaultKind
		exit string
	}{
		"SIGSEGV": {gpumux.FaultCrash, "SIGSEGV"}, "SIGABRT": {gpumux.FaultCrash, "SIGABRT"}, "SIGKILL": {gpumux.FaultCrash, "SIGKILL"},
		"SIGBUS": {gpumux.FaultCrash, "SIGBUS"}, "exit0": {gpumux.FaultCrash, "0"}, "exit3": {gpumux.FaultCrash, "3"},
	} {
		for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
			t.Run(how+"/"+string(mode), func(t *testing.T) {
				s, dir := newSlot(t), folder(t)
				got, err := run(t, s, python(dir, "die"), slot.Call{Call: calls.Call{Mode: mode}, Work: work(1, 2, how, 4)})
				f := fault(t, err)
				require.Len(t, got, 2, "what had finished is kept")
				require.Equal(t, want.kind, f.Kind)
				require.Contains(t, f.Exit, want.exit)
				require.Contains(t, f.Tail, "last words of "+how)
				require.Equal(t, "run", f.Op)
				require.Equal(t, mode == gpumux.ModeFresh, f.Alone)
				require.Equal(t, slot.Vacant, s.State())
				got, err = run(t, s, python(dir, "die"), slot.Call{Call: calls.Call{Mode: mode}, Work: work(4)})
				require.NoError(t, err)
				require.Equal(t, "4", string(got[0].Value))
			})
		}
	}
}

func TestSlot_AHangIsKilled(t *testing.T) {
	for _, how := range []string{"polite", "stubborn"} {
		s, dir := newSlot(t), folder(t)
		got, err := run(t, s, python(dir, "hang"), slot.Call{Call: calls.Call{Timeout: 500 * time.Millisecond}, Work: work("", how)})
		f := fault(t, err)
		require.Len(t, got, 1)
		require.Equal(t, gpumux.FaultTimeout, f.Kind)
		require.False(t, f.Alone)
	}
}

func TestSlot_ABrokenWireIsACrash(t *testing.T) {
	for _, function := range []string{"garbage", "close_wire"} {
		s, dir := newSlot(t), folder(t)
		_, err := run(t, s, python(dir, function), slot.Call{Work: work(1)})
		require.Equal(t, gpumux.FaultCrash, fault(t, err).Kind, function)
	}
}

func TestSlot_AMemoryErrorEndsTheProcessBeforeTheNextItem(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	log := filepath.Join(dir, "log")
	items := make([]any, 6)
	for i := range items {
		items[i] = map[string]any{"i": i, "file": log}
	}
	got, err := run(t, s, python(dir, "touch_then_fail"), slot.Call{Work: work(items...)})
	require.Equal(t, gpumux.FaultHostOOM, fault(t, err).Kind)
	require.Len(t, got, 2)
	ran, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "0\n1\n2\n", string(ran), "no item behind the faulty one has begun")
}
