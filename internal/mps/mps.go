// Package mps says how a control daemon of NVIDIA's Multi-Process Service is started,
// found and ended. It keeps nothing running and imports nothing of gpumux.
package mps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// Program is the daemon, and also sends it commands.
	Program = "nvidia-cuda-mps-control"
	// DefaultPipe is where clients look for a daemon when nothing says another folder.
	DefaultPipe = "/tmp/nvidia-mps"
	// PipeVariable names its folder to the daemon and to clients.
	PipeVariable = "CUDA_MPS_PIPE_DIRECTORY"
	// LimitVariable bounds a client's device memory, ThreadsVariable its processors.
	LimitVariable   = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
	ThreadsVariable = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
)

// Daemon is a control daemon, whether it runs or not.
type Daemon struct {
	// Pipe is the folder in which clients find it.
	Pipe string
	// Device is the UUID of the GPU that a daemon serves which is to be started.
	Device string
}

// Pipe is the pipe directory in which CUDA looks for a daemon.
func Pipe() string { return cmp.Or(os.Getenv(PipeVariable), DefaultPipe) }

// Listens reports whether a daemon takes connections in a pipe directory. CUDA passes
// over the socket of one that was killed.
func Listens(pipe string) bool {
	c, err := net.DialTimeout("unix", filepath.Join(pipe, "control"), time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil || errors.Is(err, syscall.EPROTOTYPE) || errors.Is(err, syscall.EAGAIN)
}

// Argv starts the daemon in the foreground, with Environ. Its servers and it log to its
// standard output; the files of NVIDIA's documentation exist with -d alone.
func (d Daemon) Argv() []string { return []string{Program, "-f"} }

// Environ is the environment of the daemon: a part of this program's.
func (d Daemon) Environ() []string {
	list := []string{PipeVariable + "=" + d.Pipe}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			list = append(list, name+"="+value)
		}
	}
	if d.Device != "" {
		list = append(list, "CUDA_VISIBLE_DEVICES="+d.Device)
	}
	return list
}

// Quit lets the daemon end once it has no clients.
func (d Daemon) Quit(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, Program)
	cmd.Stdin, cmd.Env = strings.NewReader("quit\n"), d.Environ()
	return cmd.Run()
}

// Limit is a client's on the one device that it sees; an entry for another drops it.
func Limit(bytes uint64) string { return fmt.Sprintf("0=%dM", bytes>>20) }
