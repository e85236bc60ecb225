package gpumux

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"strings"
)

// UnmarshalJSON reads an object that has no other fields than MapInput has. Its error is
// an *InputError with the first mistake.
func (in *MapInput) UnmarshalJSON(data []byte) error {
	type fields MapInput // without this method
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	err := decoder.Decode((*fields)(in))
	var bad InputError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mismatch):
		bad.Add(cmp.Or(mismatch.Field, "input"), "JSON %.60s does not belong here", mismatch.Value)
	case err != nil:
		bad.Add("input", "%.200s (docs/workflows.md lists the fields)", strings.TrimPrefix(err.Error(), "json: "))
	case data[0] == 'n':
		bad.Add("input", "JSON null does not belong here")
	}
	return bad.Err()
}
