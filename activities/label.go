package activities

import (
	"bytes"
	"encoding/json"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
)

// label is the part of an item that is copied into its result.
type label struct{ key, item json.RawMessage }

// labelOf is the item in what a source gives, and its label.
func labelOf(chunk contract.Chunk, given json.RawMessage) (item json.RawMessage, of label, err error) {
	item = given
	if chunk.Source != nil {
		if item, of.key, err = items.Unwrap(*chunk.Source, given); err != nil {
			return nil, of, err
		}
	}
	own, whole := contract.Label(item, chunk.Key, chunk.WithItem)
	if own != nil {
		of.key = own
	}
	of.key, of.item = bytes.Clone(of.key), whole
	return item, of, nil
}
