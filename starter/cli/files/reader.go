package files

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Abandoned waits until nobody reads from the pipe any more, or ctx ends, and reports whether it was the former. Of what is no pipe it
// waits for ctx. A writer alone would notice with its next write.
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
