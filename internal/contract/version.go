package contract

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/gpumux/gpumux"
)

// Version is the version of the contract. It rises when a worker that does not know a new
// field of an input, or a new value of one, would give a wrong result. A field that it
// may ignore leaves the version as it is.
const Version = 1

// Stamp is the version of the contract that an input was written by. An input without one
// is of version 1.
type Stamp struct{}

// MarshalJSON writes Version.
func (Stamp) MarshalJSON() ([]byte, error) { return strconv.AppendInt(nil, Version, 10), nil }

// UnmarshalJSON takes anything: Decode has looked at it before.
func (*Stamp) UnmarshalJSON([]byte) error { return nil }

// SkewError says that an input is of a later version of the contract. A worker of that
// version can read it.
type SkewError struct{ Version int }

// Error names both versions.
func (e *SkewError) Error() string {
	return fmt.Sprintf("the input is of version %d of gpumux's contract, and this worker reads versions up to %d", e.Version, Version)
}

// maxInput is the most bytes of an input; Temporal servers take 2 MiB unless told
// otherwise.
const maxInput = 4 << 20

// Decode reads the input of a workflow or an activity, and validates it. It ignores
// fields that it does not know, but a gpumux.MapInput refuses them. The error is a
// *SkewError, or a *gpumux.InputError: anybody who may use the namespace can send any
// bytes. Reading takes memory in proportion to the data.
//
//workflowcheck:ignore
func Decode(data []byte, in any) error {
	if len(data) > maxInput {
		return wrong("input", "has %s, more than the %s that travel inline; put the items in a file and give source",
			gpumux.Size(len(data)), gpumux.Size(maxInput))
	}
	var stamp struct {
		Contract int `json:"contract"`
	}
	if json.Unmarshal(data, &stamp); stamp.Contract > Version {
		return &SkewError{stamp.Contract}
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
