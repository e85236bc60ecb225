package task

import (
	"os"
	"syscall"
)

// output tells how much was printed, so that the worker can cut it per item.
type output struct {
	file *os.File
	size int64
}

// openOutput duplicates standard output, so the task cannot close it.
func openOutput() *output {
	fd, err := syscall.Dup(1)
	if err != nil {
		return &output{}
	}
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "output")
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return &output{}
	}
	return &output{file: file}
}

// grown is the size of the output, or 0 when that has not changed since the last answer.
func (o *output) grown() int64 {
	info, err := o.file.Stat() // an error when there is no file
	if err != nil || info.Size() == o.size {
		return 0
	}
	o.size = info.Size()
	return o.size
}

func (o *output) close() { o.file.Close() }
