//go:build !linux

package process

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

func MemoryKills() int { return 0 }

const TaskExposure, TemplateExposure = 0, 0

func expose(int, int) error { return nil }

func newMark() uint64 { return 0 }

// Dedicate does nothing: only Linux lets a program adopt orphans.
func Dedicate() {}

func Dedicated() bool { return false }

// Adopt refuses: a program that is not dedicated forks no template.
func (*Process) Adopt(int) error { return errors.ErrUnsupported }

func Cores() []int { return nil }

func spawn(cmd *exec.Cmd, _ uint64, _ []int) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

func await(child *os.Process, _ func()) *os.ProcessState {
	ended, _ := child.Wait()
	killGroup(child.Pid, syscall.SIGKILL)
	return ended
}

func lives(int) bool { return true }

func killGroup(pid int, signal syscall.Signal) { syscall.Kill(-pid, signal) }

func MostResident(*os.ProcessState) int64 { return 0 }

func outputFile() (*os.File, error) {
	file, err := os.CreateTemp("", "gpumux-output-")
	if err != nil {
		return nil, err
	}
	name := file.Name()
	file.Close()
	file, err = os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	os.Remove(name)
	return file, err
}

func release(*os.File, int64, int64) {}

func (*Process) killStrays() {}

func (p *Process) owns(pid int) bool { return pid == p.PID }

// Sweep does nothing: only Linux has a sweeper.
func Sweep(...string) error { return nil }
