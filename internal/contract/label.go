package contract

import (
	"encoding/json"

	"github.com/gpumux/gpumux/internal/text"
)

// Label is what a result keeps of its item: the named field, null where it is missing,
// and the whole item if asked for.
func Label(item json.RawMessage, name string, whole bool) (key, all json.RawMessage) {
	if name != "" {
		if key = text.FieldOf(item, name); key == nil {
			key = json.RawMessage("null")
		}
	}
	if whole {
		all = item
	}
	return key, all
}
