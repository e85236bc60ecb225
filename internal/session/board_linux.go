package session

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/wire"
)

// boardMemory makes the memory of a board, and the file by which the task process
// inherits it. Without error both may be nil: there is none on this system.
func boardMemory() (memory []byte, file *os.File, err error) {
	fd, err := unix.MemfdCreate("gpumux-board", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	file = os.NewFile(uintptr(fd), "board")
	if err = unix.Ftruncate(fd, wire.BoardSize); err == nil {
		// A process that cut the memory short would kill the worker at its next look.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		memory, err = unix.Mmap(fd, 0, wire.BoardSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("make a board of %d bytes: %w", wire.BoardSize, err)
	}
	return memory, file, nil
}

func freeBoard(memory []byte) { unix.Munmap(memory) }

// Clock is the time by which items on a board end, in seconds.
func Clock() float64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return float64(now.Sec) + float64(now.Nsec)/1e9
}
