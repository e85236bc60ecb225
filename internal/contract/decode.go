package contract

import (
	"cmp"
	"encoding/json"
	"errors"

	"github.com/gpumux/gpumux"
)

// maxInput is the most bytes of an input; Temporal servers take 2 MiB unless told
// otherwise.
const maxInput = 4 << 20

// Decode reads the input of a workflow or an activity, and validates it. It ignores
// fields that it does not know, but a gpumux.MapInput refuses them. The error is a
// *gpumux.InputError: anybody who may use the namespace can send any bytes. Reading takes
// memory in proportion to the data.
//
//workflowcheck:ignore
func Decode(data []byte, in any) error {
	if len(data) > maxInput {
		return wrong("input", "has %s, more than the %s that travel inline; put the items in a file and give source",
			gpumux.Size(len(data)), gpumux.Size(maxInput))
	}
	var broken *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch err := json.Unmarshal(data, in); {
	case errors.As(err, &broken):
		return wrong("input", "is not JSON: byte %d of %d makes no sense", broken.Offset, len(data))
	case errors.As(err, &mismatch):
		return wrong(cmp.Or(mismatch.Field, "input"), "JSON %.60s does not belong here", mismatch.Value)
	case err != nil:
		return wrong("input", "%v", err)
	}
	if checked, ok := in.(interface{ Validate() error }); ok {
		return checked.Validate()
	}
	return nil
}

func wrong(field, format string, args ...any) error {
	bad := gpumux.InputError{What: "input"}
	bad.Add(field, format, args...)
	return bad.Err()
}
