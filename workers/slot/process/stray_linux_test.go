package process

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/skip"
)

// What an item leaves behind and has ended is gone soon, however long the process lives, and whoever's group it was in.
func TestReapOrphans_WhatHasEndedIsReapedWhileItsProcessLives(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"", "setsid "} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			leader := exec.Command("sh", "-c", "read -r _; ("+how+`sh -c 'echo $$' &); cat >&2`)
			leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
			in, err := leader.StdinPipe()
			require.NoError(t, err)
			out, err := leader.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, startLeader(leader, taskSpawner()))
			worker := workerNumber()
			require.NoError(t, setNumbers(leader.Process.Pid, worker, processNumber(worker)))
			fmt.Fprintln(in)
			said, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				_, err := os.Stat("/proc/" + strings.TrimSpace(said))
				return os.IsNotExist(err)
			}, time.Minute, time.Millisecond)
			require.True(t, lives(leader.Process.Pid))
			in.Close()
			require.True(t, await(leader.Process).Success(), "nobody else took its end")
		})
	}
}

// A child that a program has started by itself is the program's to await.
func TestReapOrphans_OtherChildrenAreLeftAlone(t *testing.T) {
	t.Parallel()
	child := exec.Command("true")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, child.Start())
	require.Eventually(t, func() bool { return !lives(child.Process.Pid) }, time.Minute, time.Millisecond)
	reapOrphans()
	require.NoError(t, child.Wait())
}

// holding maps memory in one long call of the kernel: whoever reads its environment meanwhile waits. It writes a file when it has.
const holding = `
import ctypes, sys, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
size = 40 << 30
at = libc.mmap(None, size, 1, 0x4022, -1, 0)
libc.madvise(at, size, 15)  # MADV_NOHUGEPAGE
def wait():
    time.sleep(0.05)
    libc.mmap(None, 4096, 1, 0x22, -1, 0)
    open(sys.argv[1], "w").close()
threading.Thread(target=wait).start()
print("maps", flush=True)
libc.madvise(at, size, 22)  # MADV_POPULATE_READ
time.sleep(600)
`

// hold starts a process that is held up so, in a group of nobody's whom we know, as a descendant that got away. It waits for its
// own lock until whoever wants to read its environment can.
func hold(t *testing.T) (pid int, waits func() bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "over")
	held := exec.Command("python3", "-c", holding, file)
	held.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := held.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, held.Start())
	t.Cleanup(func() {
		held.Process.Kill()
		held.Wait()
	})
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	waits = func() bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", held.Process.Pid))
		return slices.ContainsFunc(tasks, func(file string) bool {
			stat, _ := os.ReadFile(file)
			return bytes.Contains(stat, []byte(") D "))
		})
	}
	over := func() bool {
		_, err := os.Stat(file)
		return err == nil
	}
	require.Eventually(t, func() bool { return waits() || over() }, time.Minute, time.Millisecond)
	if over() {
		skip.Because(t, skip.Kernel, "it has mapped the file at once")
	}
	return held.Process.Pid, waits
}

// A process that maps memory for seconds holds up no end of another slot's process, nor any start.
func TestKillStrays_NobodyWaitsForWhatAnotherSlotLeft(t *testing.T) {
	worker := workerNumber()
	if worker == 0 {
		skip.Because(t, skip.Kernel, "it has no numbers for processes")
	}
	own := mark{"own", processNumber(worker), worker}
	pid, waits := hold(t)
	require.NoError(t, setNumbers(pid, worker, processNumber(worker)))
	killStrays(own)
	require.True(t, waits())
	require.True(t, lives(pid))
}

// Where the environment alone tells whose a process is, only the slot that wants to know waits.
func TestKillStrays_AnEnvironmentIsReadWhileOthersStartAndEnd(t *testing.T) {
	pid, waits := hold(t)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		killStrays(mark{"own", math.MaxUint64, 0})
	}()
	for range 5 {
		other := exec.Command("true")
		other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		require.NoError(t, startLeader(other, taskSpawner()))
		require.True(t, await(other.Process).Success())
	}
	require.True(t, waits())
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	<-looked
}
