package activities

import (
	"bytes"
	"encoding/json"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
)

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
