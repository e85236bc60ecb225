package wire

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// Pair makes the two ends of a wire: the worker's, and the one that the task process inherits as Descriptor (the first of exec.Cmd's
// ExtraFiles). Neither leaks into other processes. The caller closes process once the task process has started; otherwise the stream
// never ends.
func Pair() (worker *net.UnixConn, process *os.File, err error) {
	// The lock keeps a process that starts now from inheriting the ends before they are close-on-exec.
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
	worker, err = stream(os.NewFile(uintptr(ends[0]), "wire"))
	if err != nil {
		process.Close()
		return nil, nil, err
	}
	return worker, process, nil
}

// stream takes a socket over from file, which is closed; the new descriptor is close-on-exec.
func stream(file *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return nil, fmt.Errorf("use descriptor as a socket: %w", err)
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("descriptor is a %s socket, not a Unix socket", conn.LocalAddr().Network())
	}
	return unix, nil
}
