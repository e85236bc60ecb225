// Package mps speaks with the control daemon of NVIDIA's Multi-Process Service.
//
// It owns how a daemon is started and its commands. It keeps nothing running and imports
// nothing of gpumux. Every call ends with its context.
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
	"strconv"
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

var (
	// ErrNone says that no daemon answers in the pipe directory.
	ErrNone = errors.New("no MPS control daemon answers")
	// ErrCommand says that the daemon is too old for a command.
	ErrCommand = errors.New("the MPS control daemon does not know the command")
)

// Daemon is a control daemon, whether it runs or not.
type Daemon struct {
	// Program is its path. Default: Program in PATH.
	Program string
	// Pipe is the folder in which clients find it.
	Pipe string
	// Device is the UUID of the GPU that a daemon serves which is to be started.
	Device string
}

// Pipe is the pipe directory in which CUDA looks for a daemon.
func Pipe() string { return cmp.Or(os.Getenv(PipeVariable), DefaultPipe) }

// LongestPipe is the most bytes of a pipe directory's path. Below a longer one a daemon
// cannot bind its sockets: it ends without a word.
const LongestPipe = 107 - len("/control_privileged")

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
func (d Daemon) Argv() []string { return []string{d.program(), "-f"} }

func (d Daemon) program() string { return cmp.Or(d.Program, Program) }

// Environ is the environment of the daemon.
func (d Daemon) Environ() []string {
	list := append(inherited(), PipeVariable+"="+d.Pipe)
	if d.Device != "" {
		list = append(list, "CUDA_VISIBLE_DEVICES="+d.Device)
	}
	return list
}

// Ask hands the daemon one command and returns the lines that it prints.
func (d Daemon) Ask(ctx context.Context, command string) ([]string, error) {
	cmd := exec.CommandContext(ctx, d.program())
	cmd.Stdin = strings.NewReader(command + "\n")
	cmd.Env = d.Environ()
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	lines := strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' || r == '\r' })
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("ask the MPS daemon in %s for %s: %w", d.Pipe, command, context.Cause(ctx))
	case strings.Contains(string(out), "Cannot find MPS control daemon"):
		return nil, fmt.Errorf("%w in %s", ErrNone, d.Pipe)
	case err != nil:
		return nil, fmt.Errorf("ask the MPS daemon in %s for %s: %w: %s", d.Pipe, command, err, strings.Join(lines, "; "))
	case strings.Contains(string(out), "Unknown command"): // with exit status 0
		return nil, fmt.Errorf("ask the MPS daemon in %s: %w %s", d.Pipe, ErrCommand, command)
	}
	return lines, nil
}

// inherited is the part of this process's environment that the programs get.
func inherited() (list []string) {
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// Servers are the process numbers of the servers: none before the first client, then one.
func (d Daemon) Servers(ctx context.Context) ([]int, error) {
	const command = "get_server_list"
	lines, err := d.Ask(ctx, command)
	if err != nil {
		return nil, err
	}
	var list []int
	for _, line := range lines {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("the MPS daemon in %s answered %s with %q", d.Pipe, command, line)
		}
		list = append(list, n)
	}
	return list, nil
}

// Limits returns ErrCommand where the daemon keeps no client to its memory, as that of
// driver 470; 535 is the oldest that was seen to.
func (d Daemon) Limits(ctx context.Context) error {
	_, err := d.Ask(ctx, "get_default_device_pinned_mem_limit 0")
	return err
}

// Quit lets the daemon end once it has no clients.
func (d Daemon) Quit(ctx context.Context) error {
	_, err := d.Ask(ctx, "quit")
	return err
}

// Limit is a client's on the one device that it sees; an entry for another drops it.
func Limit(bytes uint64) string { return fmt.Sprintf("0=%dM", bytes>>20) }

// LimitOf is a device's limit in a list of entries for all devices, in bytes, or 0.
func LimitOf(list string, index int, uuid string) uint64 {
	for entry := range strings.SplitSeq(list, ",") {
		name, size, _ := strings.Cut(strings.TrimSpace(entry), "=")
		if name != strconv.Itoa(index) && !strings.EqualFold(name, uuid) || size == "" {
			continue
		}
		shift := map[byte]int{'K': 10, 'M': 20, 'G': 30}
		digits := strings.TrimRight(strings.ToUpper(size), "KMGB")
		n, err := strconv.ParseUint(digits, 10, 32)
		if unit := strings.ToUpper(size[len(digits):]); err == nil && unit != "" {
			return n << shift[unit[0]]
		}
		return 0
	}
	return 0
}
