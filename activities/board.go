package activities

import (
	"bytes"
	"encoding/json"
	"iter"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
)

// board knows which items of a chunk need not run.
type board struct {
	// items are all of the chunk. before[i] is how many of them lie before run i.
	items  contract.Runs
	before []int64
	// done marks the items that need not run, by position in the chunk.
	done []bool
}

func newBoard(items contract.Runs) board {
	b, n := board{items: items}, int64(0)
	for _, run := range items {
		b.before = append(b.before, n)
		n += run.Len()
	}
	b.done = make([]bool, n)
	return b
}

func (b *board) at(index int64) (int64, bool) {
	run, inside := b.items.Find(index)
	if !inside {
		return 0, false
	}
	return b.before[run] + index - b.items[run].Start, true
}

func (b *board) open(among contract.Runs) iter.Seq2[int64, int64] {
	return func(yield func(at, index int64) bool) {
		for _, run := range among {
			for index := run.Start; index < run.End; index++ {
				if at, ok := b.at(index); ok && !b.done[at] && !yield(at, index) {
					return
				}
			}
		}
	}
}

func (b *board) all() iter.Seq2[int64, int64] {
	return func(yield func(at, index int64) bool) {
		at := int64(0)
		for _, run := range b.items {
			for index := run.Start; index < run.End; index++ {
				if !yield(at, index) {
					return
				}
				at++
			}
		}
	}
}

// after returns the position behind the first n of the items that may still have to run,
// or behind the first one.
func (b *board) after(among contract.Runs, n int) (behind int64) {
	for at := range b.open(among) {
		behind = at + 1
		if n--; n <= 0 {
			break
		}
	}
	return behind
}

// label is the part of an item that is copied into its result.
type label struct{ key, item json.RawMessage }

func labelOf(chunk contract.Chunk, raw json.RawMessage) (item json.RawMessage, mark label, err error) {
	item = raw
	if chunk.Source != nil {
		if item, mark.key, err = items.Unwrap(*chunk.Source, raw); err != nil {
			return nil, mark, err
		}
	}
	key, whole := contract.Label(item, chunk.Key, chunk.WithItem)
	if key != nil {
		mark.key = key
	}
	mark.key, mark.item = bytes.Clone(mark.key), whole
	return item, mark, nil
}
