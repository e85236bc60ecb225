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

// mark notes in an answer where the output so far ends, when there is more of it than at the last answer.
func (p *printed) mark(m Message) Message {
	if p.file == nil {
		return m
	}
	info, err := p.file.Stat()
	if err != nil || info.Size() == p.size {
		return m
	}
	p.size = info.Size()
	switch answer := m.(type) {
	case Results:
		answer.Out = p.size
		return answer
	case Fault:
		answer.Out = p.size
		return answer
	}
	return m
}

func (p *printed) close() {
	if p.file != nil {
		p.file.Close()
	}
}
