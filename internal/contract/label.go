package contract

import (
	"encoding/json"

	"github.com/gpumux/gpumux"
)

// Label is what the result of an item has of it: the field that is named, null where it lacks that, and the item itself. Without a name
// there is no field, and where the whole is not asked for no item.
func Label(item json.RawMessage, name string, whole bool) (key, all json.RawMessage) {
	if name != "" {
		if key = gpumux.FieldOf(item, name); key == nil {
			key = json.RawMessage("null")
		}
	}
	if whole {
		all = item
	}
	return key, all
}
