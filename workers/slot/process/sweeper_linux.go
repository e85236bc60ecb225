package process

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/logkey"
)

//go:embed sweeper.sh
var sweeperScript string

// shellPause is the backoff between the starts of two shells.
const shellPause = time.Second

// shell is a running sweeper.sh.
type shell struct {
	pid     int
	started time.Time
	// pipe is its standard input. The kernel closes it when this program is gone.
	pipe *os.File
}

// start starts the shell; the caller holds the lock.
func (s *Sweeper) start() error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pipe to the sweeper: %w", err)
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", sweeperScript, "gpumux-sweeper", workerToken+"="+s.token,
		strconv.FormatUint(s.number, 10), strconv.Itoa(syscall.Getpgrp()))
	cmd.Env, cmd.Stdin, cmd.SysProcAttr = []string{"PATH=/usr/bin:/bin"}, r, &syscall.SysProcAttr{Setsid: true}
	if err := startLeader(cmd, sweeperSpawner()); err != nil {
		w.Close()
		return fmt.Errorf("start the sweeper, which needs /bin/sh: %w", err)
	}
	now := &shell{pid: cmd.Process.Pid, started: time.Now(), pipe: w}
	s.shell = now
	for _, folder := range s.folders {
		_ = now.tell(folder) // a shell that has ended already is replaced
	}
	s.done.Go(func() {
		state := await(cmd.Process)
		s.ended(now, state)
	})
	return nil
}

// ended replaces a shell that was not told to end.
func (s *Sweeper) ended(was *shell, state *os.ProcessState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was.pipe.Close()
	if s.shell != was {
		return
	}
	s.shell = nil
	s.log.Warn("the sweeper, which ends what is left of the tasks of a worker that was killed, has ended; another takes its place",
		zap.Int(logkey.PID, was.pid), zap.String(logkey.Why, state.String()))
	time.AfterFunc(shellPause-time.Since(was.started), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.shell != nil || s.closed {
			return
		}
		if err := s.start(); err != nil {
			s.log.Warn("no sweeper could be started; the next task process tries again", zap.String(logkey.Why, err.Error()))
		}
	})
}

// tell names a folder to remove.
func (s *shell) tell(folder string) error {
	if _, err := fmt.Fprintln(s.pipe, folder); err != nil {
		return fmt.Errorf("tell the sweeper of %s: %w", folder, err)
	}
	return nil
}

func (s *shell) kill() {
	childLock.Lock() // nothing reaps a leader meanwhile
	defer childLock.Unlock()
	if leads(s.pid) {
		killGroup(s.pid, syscall.SIGKILL)
	}
}
