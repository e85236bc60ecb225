package process

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
)

//go:embed sweeper.sh
var sweeperScript string

// sweeperPause is the least time between the starts of two sweepers.
const sweeperPause = time.Second

// sweeper is the shell that runs sweeper.sh; it is replaced when it ends.
var sweeper struct {
	sync.Mutex
	// pipe is its standard input, which the kernel closes when this program is gone. It is
	// nil while none runs.
	pipe    *os.File
	folders []string
}

// Sweep lets descendants of task processes be killed and the folders be removed when this
// program is gone, however it ended.
func Sweep(log *zap.Logger, folders ...string) error {
	sweeper.Lock()
	defer sweeper.Unlock()
	sweeper.folders = append(sweeper.folders, folders...)
	if sweeper.pipe == nil {
		folders = sweeper.folders
		if err := startSweeper(log); err != nil {
			return fmt.Errorf("start the sweeper, which needs /bin/sh: %w", err)
		}
	}
	for _, folder := range folders {
		fmt.Fprintln(sweeper.pipe, folder) // if the shell has ended, its successor is told
	}
	return nil
}

func startSweeper(log *zap.Logger) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", sweeperScript, "gpumux-sweeper", strconv.FormatUint(program(), 10), strconv.Itoa(syscall.Getpgrp()))
	cmd.Env, cmd.Stdin, cmd.SysProcAttr = []string{"PATH=/usr/bin:/bin"}, r, &syscall.SysProcAttr{Setsid: true}
	if err := startLeader(cmd, 0); err != nil {
		w.Close()
		return err
	}
	if program() == 0 {
		log.Warn("a process that leaves its task's process group lives on, since this worker may not mark its processes",
			zap.String("advice", "give the worker an unlimited hard limit on file locks (ulimit -H -x), or look for what items leave behind"))
	}
	sweeper.pipe = w
	began := time.Now()
	go func() {
		state := await(cmd.Process, nil)
		log.Warn("the sweeper, which ends what is left of the tasks of a worker that was killed, has ended; another takes its place",
			zap.Int("pid", cmd.Process.Pid), zap.String("why", state.String()))
		time.Sleep(sweeperPause - time.Since(began))
		sweeper.Lock()
		w.Close()
		sweeper.pipe = nil
		sweeper.Unlock()
		if err := Sweep(log); err != nil {
			log.Warn("no sweeper could be started; the next task process tries again", zap.String("why", err.Error()))
		}
	}()
	return nil
}
