package wire

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

const (
	// peakItem is how long an item takes for its peak to be its own; of shorter ones, one in peakEvery has the peak of all.
	peakItem  = 20 * time.Millisecond
	peakEvery = 50 * time.Millisecond
)

// peaks measures the items of this process one after the other, with the kernel's high-water mark of its resident memory. A worker
// that read the mark and set it back would wait wherever the process holds the lock of its memory.
type peaks struct {
	told bool
	due  time.Time
}

// of is the peak in bytes of an item that has just ended, or 0 when it is not measured.
func (p *peaks) of(began time.Time) int64 {
	ended := time.Now()
	if !p.told || ended.Before(p.due) && ended.Sub(began) < peakItem {
		return 0
	}
	p.due = ended.Add(peakEvery)
	most := takePeak()
	p.told = most > 0
	return most
}

func takePeak() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	kib, _, _ := bytes.Cut(rest, []byte(" kB"))
	most, err := strconv.ParseInt(string(bytes.TrimSpace(kib)), 10, 64)
	// 5 sets the mark back and touches nothing else.
	if err != nil || os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) != nil {
		return 0
	}
	return most << 10
}
