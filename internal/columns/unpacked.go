package columns

import (
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/items"
)

// A row group or a batch may take so many bytes of memory, and more if that is less than
// maxGrowth times what it takes in the file: a file of some hundred bytes can stand for
// gigabytes. Only tests change it.
var maxUnpacked = int64(1 << 30)

const maxGrowth = 64

// tooLarge is the error about a row group or a batch of so many bytes that needs too much
// memory, or nil.
func tooLarge(what string, stored, unpacked int64) error {
	if unpacked <= max(maxUnpacked, maxGrowth*stored) {
		return nil
	}
	return &items.SourceError{Problem: fmt.Sprintf("%s of %s needs %s of memory, and above %s that may be at most %d times as much",
		what, gpumux.Size(stored), gpumux.Size(unpacked), gpumux.Size(maxUnpacked), maxGrowth),
		Hint: "write the file anew with fewer rows in each (row_group_size or max_chunksize in pyarrow), or name the columns to read"}
}

// boundedMemory allocates what a batch of an Arrow file may take. Of a row group the
// metadata says it.
type boundedMemory struct {
	memory.Allocator
	stored int64
	live   atomic.Int64
}

// take panics with a *items.SourceError where the file asks for too much.
func (m *boundedMemory) take(size int) {
	if err := tooLarge("a batch", m.stored, m.live.Add(int64(size))); err != nil {
		panic(err)
	}
}

// Allocate is Allocator's.
func (m *boundedMemory) Allocate(size int) []byte {
	m.take(size)
	return m.Allocator.Allocate(size)
}

// Reallocate is Allocator's.
func (m *boundedMemory) Reallocate(size int, b []byte) []byte {
	m.take(size - len(b))
	return m.Allocator.Reallocate(size, b)
}

// Free is Allocator's.
func (m *boundedMemory) Free(b []byte) {
	m.live.Add(int64(-len(b)))
	m.Allocator.Free(b)
}
