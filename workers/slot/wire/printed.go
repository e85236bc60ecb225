package wire

import (
	"os"
	"syscall"
)

// printed tells how much the process has printed, where standard output is a file; the worker cuts output per item with it.
type printed struct {
	file *os.File
	size int64
}

// openOutput keeps standard output by a descriptor of its own, which the task cannot close.
func openOutput() *printed {
	fd, err := syscall.Dup(1)
	if err != nil {
		return &printed{}
	}
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "output")
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return &printed{}
	}
	return &printed{file: file}
}

// grown is where the output so far ends, or 0 when that is where it ended at the last answer.
func (p *printed) grown() int64 {
	if p.file == nil {
		return 0
	}
	info, err := p.file.Stat()
	if err != nil || info.Size() == p.size {
		return 0
	}
	p.size = info.Size()
	return p.size
}

func (p *printed) close() {
	if p.file != nil {
		p.file.Close()
	}
}
