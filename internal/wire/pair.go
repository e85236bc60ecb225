package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// Pair makes the two ends of a wire: the worker's, and the one that the process inherits
// as descriptor 3. Neither leaks into other processes. The caller closes process once it
// has started; otherwise the stream never ends.
func Pair() (worker net.Conn, process *os.File, err error) {
	// The lock keeps a process that starts now from inheriting the ends.
	syscall.ForkLock.RLock()
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(ends[0])
		syscall.CloseOnExec(ends[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("open a socket pair for a task process: %w", os.NewSyscallError("socketpair", err))
	}
	process = os.NewFile(uintptr(ends[1]), "wire")
	near := os.NewFile(uintptr(ends[0]), "wire")
	defer near.Close()
	worker, err = net.FileConn(near)
	if err != nil {
		process.Close()
		return nil, nil, fmt.Errorf("use a descriptor as the socket of a task process: %w", err)
	}
	return worker, process, nil
}

// Pipes makes a wire of two pipes, for a process that cannot use a socket: it reads from
// the first of its files and writes to the second.
func Pipes() (worker io.ReadWriteCloser, process []*os.File, err error) {
	read, theirWrite, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("open a pipe for a task process: %w", err)
	}
	theirRead, write, err := os.Pipe()
	if err != nil {
		read.Close()
		theirWrite.Close()
		return nil, nil, fmt.Errorf("open a pipe for a task process: %w", err)
	}
	return pipes{read, write}, []*os.File{theirRead, theirWrite}, nil
}

type pipes struct {
	*os.File
	write *os.File
}

func (p pipes) Write(b []byte) (int, error) { return p.write.Write(b) }

// SyscallConn belongs to the end for writing.
func (p pipes) SyscallConn() (syscall.RawConn, error) { return p.write.SyscallConn() }

func (p pipes) Close() error { return errors.Join(p.File.Close(), p.write.Close()) }
