package slot_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
)

// unanswered makes every open of a file hang until release, as on a network file system
// whose server is away.
func unanswered(t *testing.T, path string) (release func()) {
	t.Helper()
	lease := exec.Command("python3", "-c", `
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
`, path)
	in, err := lease.StdinPipe()
	require.NoError(t, err)
	out, err := lease.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, lease.Start())
	release = func() {
		in.Close()
		lease.Wait()
	}
	t.Cleanup(release)
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return release
}

// A program that cannot be read delays only its own call, and only for a limited time.
func TestSlot_AProgramWhoseFileSystemDoesNotAnswer(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho 1\n"), 0o755))
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t), StartLimit: patience})
	task, call := launch.Task{Name: "away", Command: []string{program}}, slot.Call{Work: work(1)}
	release := unanswered(t, program)

	for range 2 {
		_, err := run(t, s, task, call)
		f := fault(t, err)
		require.Equal(t, gpumux.FaultCrash, f.Kind)
		require.Equal(t, "start", f.Op)
		require.True(t, f.Blameless)
		require.Contains(t, f.Error(), program)
		require.Contains(t, f.Hint, "network mount")
	}
	patient := slot.New(slot.Options{Name: "cpu/1", Device: "CPU", Runtime: runtimePath(t)})
	ended := make(chan error, 1)
	go func() { ended <- patient.Run(context.Background(), task, call) }()
	require.Eventually(t, func() bool { return patient.State() == slot.Starting }, time.Minute, time.Millisecond)
	require.Equal(t, "away", patient.Stats().Starting.Task)
	require.WithinRange(t, patient.Stats().Starting.Began, time.Now().Add(-time.Minute), time.Now())
	// Another start does not wait for it, and neither does a slot that stops.
	other := slot.New(slot.Options{Name: "cpu/2", Device: "CPU", Runtime: runtimePath(t)})
	got, err := run(t, other, launch.Task{Name: "near", Command: []string{"echo", "2"}}, slot.Call{Work: work(1)})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.NoError(t, patient.Stop(context.Background()))
	require.ErrorIs(t, <-ended, slot.ErrStopped)

	release()
	got, err = run(t, other, task, call)
	require.NoError(t, err)
	require.Equal(t, "1", string(got[0].Value))
	require.NoError(t, other.Stop(context.Background()))
	require.NoError(t, s.Stop(context.Background()))
}
