package slot_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/slot"
)

// A task may close or replace the wire's descriptor and go on. In both cases its fault
// says so.
func TestSlot_TaskTakesTheWireAway(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"lose_wire", "replace_wire"} {
		t.Run(how, func(t *testing.T) {
			s := newSpawning(t)
			_, err := s.run(s.task("item"), slot.Call{Work: work(object{"i": 1, "end": how})})
			f := fault(t, err)
			require.Equal(t, gpumux.FaultCrash, f.Kind)
			require.Equal(t, "exit status 64", f.Exit)
			require.Contains(t, f.Message, "the task closed or replaced a descriptor that it had not opened")
			require.Contains(t, f.Hint, "os.closerange")

			_, err = s.run(s.task("item", "END_IMPORT", how), slot.Call{Work: work(object{"i": 1})})
			require.Contains(t, fault(t, err).Message, "the task closed or replaced a descriptor that it had not opened")
			s.works()
		})
	}
}

// A result on the board counts, although the process cannot tell of it.
func TestSlot_ResultWithoutTheWire(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.ModePersistent)
	got, err := s.run(s.task("item"), slot.Call{Work: work(object{"i": 1, "end": "lose_wire"})})
	require.NoError(t, err)
	require.Equal(t, []int{1}, numbers(t, got))
	_, err = s.run(s.task("item"), slot.Call{Work: work(object{"i": 2})})
	require.NoError(t, err)
}

func TestSlot_WhatIsNoPython(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.ModePersistent)
	task := s.task("item")
	task.Interpreter = filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(task.Interpreter, []byte("#!/bin/sh\necho last words of no Python\nexit 7\n"), 0o755))
	_, err := s.run(task, slot.Call{Work: work(object{"i": 1})})
	f := fault(t, err)
	require.Equal(t, gpumux.FaultCrash, f.Kind)
	require.Equal(t, task.Interpreter+" ended with exit status 7 before it began to import the task: last words of no Python", f.Message)
	require.Contains(t, f.Hint, "`"+task.Interpreter+" --version`")
}

func TestSlot_ImportThatEndsTheProcess(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.ModePersistent)
	for how, want := range map[string]string{
		"exit3":    "the import of faults.py ended the process with exit status 3: last words of exit3",
		"exit0":    "the import of faults.py ended the process with exit status 0: last words of exit0",
		"sys_exit": `the import of faults.py called sys.exit(3); take that out of it, or put it under if __name__ == "__main__"`,
	} {
		_, err := s.run(s.task("item", "END_IMPORT", how), slot.Call{Work: work(object{"i": 1})})
		require.Equal(t, want, fault(t, err).Message)
	}
}
