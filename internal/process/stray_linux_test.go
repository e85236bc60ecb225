package process

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/test/rig"
)

// What an item leaves behind and has ended is gone soon, however long the process lives,
// and whoever's group it was in.
func TestReapOrphans_WhatHasEndedIsReapedWhileItsProcessLives(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"", "setsid "} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			needsMarks(t)
			leader := exec.Command("sh", "-c", "read -r _; ("+how+`sh -c 'echo $$' &); cat >&2`)
			in, err := leader.StdinPipe()
			require.NoError(t, err)
			out, err := leader.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, spawn(leader, newMark(), nil))
			fmt.Fprintln(in)
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				_, err := os.Stat("/proc/" + strings.TrimSpace(line))
				return os.IsNotExist(err)
			}, time.Minute, time.Millisecond)
			require.True(t, lives(leader.Process.Pid))
			in.Close()
			require.True(t, await(leader.Process, nil).Success(), "nobody else took its end")
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

// A daemon that left its group, its session and its environment ends with its process,
// and no other process's does.
func TestProcess_ItsDaemonsEndWithItAndNoOthers(t *testing.T) {
	t.Parallel()
	needsMarks(t)
	start := func() (p *Process, daemon int) {
		p, err := New(0, zap.NewNop())
		require.NoError(t, err)
		r, w, err := os.Pipe()
		require.NoError(t, err)
		defer r.Close()
		marked, mark, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, p.Start(Command{
			Argv: []string{"/bin/sh", "-c", `read -r _; setsid env -i sh -c '(trap "" TERM HUP; exec sleep 600) & echo $!' & exec sleep 600`},
			Env:  []string{"PATH=/usr/bin:/bin"}, Stdin: marked, Stdout: w,
		}))
		w.Close()
		marked.Close()
		mark.Close()
		p.Follow(func() {})
		t.Cleanup(p.Kill)
		line, err := bufio.NewReader(r).ReadString('\n')
		require.NoError(t, err)
		daemon, err = strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
		return p, daemon
	}
	first, daemon := start()
	_, other := start()
	require.NotEqual(t, first.PID, groupOf(daemon))
	require.True(t, first.owns(daemon))
	require.False(t, first.owns(other))
	first.Kill()
	require.False(t, lives(daemon))
	require.True(t, lives(other))
}

func needsMarks(t *testing.T) {
	t.Helper()
	Dedicate()
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_LOCKS, &limit))
	if limit.Max != unix.RLIM_INFINITY {
		rig.Because(t, rig.Kernel, "no process may be marked")
	}
}
