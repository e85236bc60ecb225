package activities

import (
	"bytes"
	"encoding/json"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
)

// label is what the result of an item has of it.
type label struct{ key, item json.RawMessage }

// takeItem is the item in what a source gives, about to run. It keeps the item's label.
func (l *ledger) takeItem(index int64, item json.RawMessage) (_ json.RawMessage, err error) {
	var key json.RawMessage
	if l.chunk.Source != nil {
		if item, key, err = items.Unwrap(*l.chunk.Source, item); err != nil {
			return nil, err
		}
	}
	if l.chunk.Key == "" && !l.chunk.WithItem && key == nil {
		return item, nil
	}
	own, whole := contract.Label(item, l.chunk.Key, l.chunk.WithItem)
	if own != nil {
		key = own
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.labels == nil {
		l.labels = map[int64]label{}
	}
	l.labels[index] = label{bytes.Clone(key), whole}
	return item, nil
}

// labeled is a result with the label of its item.
func (l *ledger) labeled(r gpumux.Result) gpumux.Result {
	if of, noted := l.labels[r.Index]; noted {
		r.Key, r.Item = of.key, of.item
		delete(l.labels, r.Index)
	}
	return r
}
