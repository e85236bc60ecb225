package wire

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

const (
	// BoardSize is a board's size in bytes.
	BoardSize = boardHead + 1<<20
	// boardHead is where records begin, behind the offsets of what is published and read.
	boardHead  = 64
	recordHead = 56
	// boardSkip instead of a value's size says that the next record is at the beginning.
	boardSkip = math.MaxUint32
)

// Board is the worker's end of memory that a task process puts results into. A nil Board
// has none. One goroutine uses it. The process can do no more harm than a wrong result of
// its own: records are copied before they are checked, and the memory cannot shrink.
type Board struct {
	memory []byte
	read   uint64
	list   []Record
}

// NewBoard reads from BoardSize bytes that a task process shares.
func NewBoard(memory []byte) *Board { return &Board{memory: memory} }

// Record is one result on a board. It owns its memory.
type Record struct {
	Run int64
	N   int
	// Value is JSON, or as Kind says.
	Value json.RawMessage
	Kind  Kind
	Busy  float64
	// Ended is in seconds of the monotonic clock; a micro-batch has one.
	Ended     float64
	Out, Peak int64
	// kinded is the value behind its kind, where that costs no copy.
	kinded []byte
}

// Arrays is a value with arrays as package arrays takes it, or nil for another.
func (r *Record) Arrays() []byte {
	switch {
	case r.Kind != Array && r.Kind != Mixed:
		return nil
	case r.kinded == nil:
		return append([]byte{byte(r.Kind)}, r.Value...)
	}
	r.kinded[0] = byte(r.Kind)
	return r.kinded
}

// Published is the end of the process's records. The process may be writing that memory.
// On processors that reorder writes, it waits a moment for the earlier ones.
func (b *Board) Published() uint64 {
	if b == nil {
		return 0
	}
	end := atomic.LoadUint64((*uint64)(unsafe.Pointer(&b.memory[0])))
	if end != b.read && runtime.GOARCH != "amd64" {
		time.Sleep(time.Millisecond)
	}
	return end
}

// Read consumes the records up to end, as the process or Published told it. Records
// before a *ProtocolError are good. The next Read reuses the list, not the memory.
func (b *Board) Read(end uint64) ([]Record, error) {
	if b == nil {
		if end > 0 {
			return nil, broken("the process has no board and speaks of its byte %d", end)
		}
		return nil, nil
	}
	if end <= b.read {
		// It was read before its message came.
		return nil, nil
	}
	size := uint64(len(b.memory) - boardHead)
	if end-b.read > size || end%8 != 0 {
		return nil, broken("the board cannot go from byte %d to %d; it holds %d", b.read, end, size)
	}
	ring, from, to := b.memory[boardHead:], b.read%size, end%size
	var copied []byte
	if from < to {
		copied = append(copied, ring[from:to]...)
	} else {
		copied = append(append(make([]byte, 0, end-b.read), ring[from:]...), ring[:to]...)
	}
	clear(b.list)
	var err error
	if b.list, err = records(b.list[:0], copied, int(size-from)); err == nil {
		b.read = end
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&b.memory[8])), end)
	}
	return b.list, err
}

// records appends the records of a copy; the ring ended at its byte edge.
func records(list []Record, copied []byte, edge int) ([]Record, error) {
	for at := 0; at < len(copied); {
		limit := len(copied)
		if at < edge {
			limit = min(limit, edge)
		}
		head := copied[at:limit]
		size := binary.LittleEndian.Uint32(head)
		if size == boardSkip && at < edge && edge <= len(copied) {
			at = edge
			continue
		}
		if len(head) < recordHead || int64(size) > int64(len(head)-recordHead) {
			return list, broken("a record on the board claims a value of %d bytes, where %d are left", size, max(0, len(head)-recordHead))
		}
		r := Record{
			Run: int64(binary.LittleEndian.Uint64(head[8:])), N: int(binary.LittleEndian.Uint32(head[16:])),
			Kind:  Kind(binary.LittleEndian.Uint32(head[20:])),
			Value: head[recordHead : recordHead+int(size) : recordHead+int(size)],
			Busy:  seconds(head[24:]), Ended: seconds(head[32:]),
			Out: int64(binary.LittleEndian.Uint64(head[40:])), Peak: int64(binary.LittleEndian.Uint64(head[48:])),
			kinded: head[recordHead-1 : recordHead+int(size) : recordHead+int(size)],
		}
		if err := r.check(); err != nil {
			return list, err
		}
		list = append(list, r)
		at += recordHead + (int(size)+7)&^7
	}
	return list, nil
}

func seconds(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }

func (r *Record) check() error {
	switch {
	case r.Kind > Mixed:
		return broken("a record on the board has a value of kind %d; kinds are 0 to %d", r.Kind, Mixed)
	case len(r.Value) == 0:
		return broken("a record on the board has an empty value; a value has at least one byte")
	case r.Run < 1:
		return broken("a record on the board is of run %d; runs count from 1", r.Run)
	case !(r.Busy >= 0) || math.IsInf(r.Busy, 0):
		return broken("a record on the board took %v seconds", r.Busy)
	case math.IsNaN(r.Ended) || math.IsInf(r.Ended, 0):
		return broken("a record on the board ended at %v", r.Ended)
	case r.Peak < 0:
		return broken("a record on the board has a peak of %d bytes", r.Peak)
	}
	return nil
}
