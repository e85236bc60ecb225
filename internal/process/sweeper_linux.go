package process

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

//go:embed sweeper.sh
var sweeperScript string

// Sweep lets descendants of task processes be killed and the folders be removed when this
// program is gone, however it ended.
func Sweep(folders ...string) error {
	pipe, err := sweeper()
	if err != nil {
		return fmt.Errorf("start the sweeper, which needs /bin/sh: %w", err)
	}
	for _, folder := range folders {
		fmt.Fprintln(pipe, folder)
	}
	return nil
}

// sweeper starts the shell that runs sweeper.sh. It returns its standard input, which the
// kernel closes when this program is gone.
var sweeper = sync.OnceValues(func() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", sweeperScript, "gpumux-sweeper", strconv.FormatUint(program, 10))
	cmd.Env, cmd.Stdin, cmd.SysProcAttr = []string{"PATH=/usr/bin:/bin"}, r, &syscall.SysProcAttr{Setsid: true}
	if err := startLeader(cmd, nil); err != nil {
		w.Close()
		return nil, err
	}
	go await(cmd.Process, nil)
	return w, nil
})
