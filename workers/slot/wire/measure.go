package wire

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	// peakItem is how long an item takes for its peak to be its own; of shorter ones, one in peakEvery has the peak of all.
	peakItem  = 20 * time.Millisecond
	peakEvery = 50 * time.Millisecond
)

// peaks measures the items of this process with the kernel's high-water mark of its resident memory. The worker does not do it: it
// would wait for the lock of the process's memory.
type peaks struct {
	supported bool
	due       time.Time
}

// measure is the peak in bytes of an item that has just ended, or 0 when it is not measured.
func (p *peaks) measure(began time.Time) int64 {
	ended := time.Now()
	if !p.supported || ended.Before(p.due) && ended.Sub(began) < peakItem {
		return 0
	}
	p.due = ended.Add(peakEvery)
	peak := resetPeak()
	p.supported = peak > 0
	return peak
}

// resetPeak is the high-water mark, which starts anew.
func resetPeak() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	kib, _, _ := bytes.Cut(rest, []byte(" kB"))
	most, err := strconv.ParseInt(string(bytes.TrimSpace(kib)), 10, 64)
	// 5 resets the mark and nothing else.
	if err != nil || os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) != nil {
		return 0
	}
	return most << 10
}

// output tells how much the process has printed, where standard output is a file. The worker cuts the output per item with it.
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
