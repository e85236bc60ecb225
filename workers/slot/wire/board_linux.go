package wire

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NewBoard makes a board and the file that the task process inherits as BoardDescriptor (the second of exec.Cmd's
// ExtraFiles). The caller closes the file once the process has started, and the board when it is read for the last time.
// On systems without such memory all three are nil.
func NewBoard() (*Board, *os.File, error) {
	fd, err := unix.MemfdCreate("gpumux-board", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("make a board: %w", os.NewSyscallError("memfd_create", err))
	}
	file := os.NewFile(uintptr(fd), "board")
	b := &Board{}
	if err = unix.Ftruncate(fd, BoardSize); err == nil {
		// A process that cut the memory short would kill the worker at its next look.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		b.memory, err = unix.Mmap(fd, 0, BoardSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("make a board of %d bytes: %w", BoardSize, err)
	}
	return b, file, nil
}

// Close gives the memory back. Nothing may use the board any more.
func (b *Board) Close() {
	if b != nil && b.memory != nil {
		unix.Munmap(b.memory)
		b.memory = nil
	}
}

// Clock is the time by which records end, in seconds.
func Clock() float64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return float64(now.Sec) + float64(now.Nsec)/1e9
}
