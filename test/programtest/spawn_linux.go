package programtest

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts all processes on one thread, which lives as long as the test binary: the
// kernel kills them when it ends, however it ends.
var spawner = func() chan func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
}()

// Spawn starts a command that ends with the test binary, and whose output goes to the end
// of a file.
func Spawn(cmd *exec.Cmd, log string) error {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd.Stderr = file
	if cmd.Stdout == nil {
		cmd.Stdout = file
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	done := make(chan error)
	spawner <- func() { done <- cmd.Start() }
	return <-done
}
