package slot

import (
	"fmt"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/internal/wire"
)

// resultOf makes a result of a value: JSON, or with its arrays as bytes where the call
// takes them so. The Python runtime encodes JSON itself and needs no check. Another
// program may send what no store takes, so its values are checked.
func resultOf(task launch.Task, asArrays bool, record wire.Record) (r gpumux.Result, err error) {
	foreign := task.Python == ""
	if asArrays {
		if r.Arrays = record.Arrays(); r.Arrays != nil {
			if foreign {
				err = arrays.Check(r.Arrays)
			}
			return r, err
		}
	}
	r.Value, err = record.Kind.Text(record.Value)
	if err == nil && foreign && (record.Kind == wire.JSON || record.Kind == wire.Mixed) && !text.Valid(r.Value) {
		err = fmt.Errorf("it is not JSON: %.80q", record.Value)
	}
	return r, err
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}
