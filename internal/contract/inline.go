package contract

import (
	"fmt"

	"github.com/gpumux/gpumux"
)

// LargestResult is the most bytes of a value that travels inline.
const LargestResult = 1 << 20

// TooLarge is the fault of an item whose result nothing but the history can take.
func TooLarge(task string, bytes int) *gpumux.Fault {
	return &gpumux.Fault{
		Kind: gpumux.FaultTaskError, Op: "run", Task: task,
		Message: fmt.Sprintf("the result has %s, more than the %s that travel inline", gpumux.Size(bytes), gpumux.Size(LargestResult)),
		Hint:    "run the map over a source in the store (gpumux.Map, MapSource), or write large results to a file and return its path",
	}
}
