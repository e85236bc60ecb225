package files

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Abandoned waits until the pipe's reader has gone or ctx ends, and reports true if the
// reader has. For other files it waits for ctx.
func Abandoned(ctx context.Context, pipe *os.File) bool {
	const look = 500 // milliseconds; a reader that goes ends the wait at once
	info, err := pipe.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		<-ctx.Done()
		return false
	}
	for ctx.Err() == nil {
		on := []unix.PollFd{{Fd: int32(pipe.Fd())}}
		n, err := unix.Poll(on, look)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
		if n > 0 && on[0].Revents&unix.POLLERR != 0 {
			return true
		}
	}
	return false
}
