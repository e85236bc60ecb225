package columns

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/store"
)

// A row group or a batch may take so many bytes of memory, and more if that is less than
// mostGrowth times what it takes in the file: a file of some hundred bytes can stand for
// gigabytes. Only tests change it.
var mostUnpacked = int64(1 << 30)

const mostGrowth = 64

// tooLarge is the error about a row group or a batch of so many bytes that needs too much
// memory, or nil.
func tooLarge(what string, stored, unpacked int64) error {
	if unpacked <= max(mostUnpacked, mostGrowth*stored) {
		return nil
	}
	return &store.SourceError{Problem: fmt.Sprintf("%s of %s needs %s of memory, and above %s that may be at most %d times as much",
		what, gpumux.Size(stored), gpumux.Size(unpacked), gpumux.Size(mostUnpacked), mostGrowth),
		Hint: "write the file anew with fewer rows in each (row_group_size or max_chunksize in pyarrow), or leave columns out with --columns"}
}

// boundedMemory allocates for one Arrow file at a time what a batch may take.
type boundedMemory struct {
	memory.Allocator
	file, live int64
}

// Allocate panics with a *store.SourceError where the file asks for too much.
func (m *boundedMemory) Allocate(size int) []byte {
	if err := tooLarge("a batch", m.file, m.live+int64(size)); err != nil {
		panic(err)
	}
	m.live += int64(size)
	return m.Allocator.Allocate(size)
}

// Reallocate is Allocate for more of the same.
func (m *boundedMemory) Reallocate(size int, b []byte) []byte {
	if err := tooLarge("a batch", m.file, m.live+int64(size-len(b))); err != nil {
		panic(err)
	}
	m.live += int64(size - len(b))
	return m.Allocator.Reallocate(size, b)
}

// Free is Allocator's.
func (m *boundedMemory) Free(b []byte) {
	m.live -= int64(len(b))
	m.Allocator.Free(b)
}
