package workflows

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gpumux/gpumux"
)

// Decode is the value of JSON that a map gave, such as the Key or the Item of a Result;
// of no JSON and of null it is zero. In a workflow it stands for encoding/json, which
// workflowcheck takes for nondeterministic. errors.As finds a *gpumux.Fault in its error.
func Decode[T any](raw json.RawMessage) (value T, err error) {
	if len(raw) == 0 {
		return value, nil
	}
	value, fault := fit[T](raw)
	if fault != nil {
		return value, errorOf(fault)
	}
	return value, nil
}

// Reduced is the value that the Reduce of a map made. Its error is the ReduceFault, if
// there is one, or says that the value is too large to be in the summary, which names its
// object as ReducedOutput.
func Reduced[T any](summary gpumux.Summary) (value T, err error) {
	switch {
	case summary.ReduceFault != nil:
		return value, errorOf(summary.ReduceFault)
	case summary.ReducedOutput != "":
		return value, invalid(fmt.Errorf("the value of the reduce has more than %s; it is at %s", gpumux.Size(gpumux.InlineBytes), summary.ReducedOutput))
	case summary.Reduced == nil:
		return value, invalid(errors.New("the input of the map names no reduce"))
	}
	return Decode[T](summary.Reduced)
}

// fit decodes a value, or says why it does not fit T.
//
//workflowcheck:ignore
func fit[T any](raw json.RawMessage) (value T, fault *gpumux.Fault) {
	if err := json.Unmarshal(raw, &value); err != nil {
		return value, &gpumux.Fault{
			Kind: gpumux.FaultTaskError, Op: "run", Message: fmt.Sprintf("the value %.200s does not fit %T: %v", raw, value, err),
			Hint: "let the task return what the workflow expects, or change the workflow's type",
		}
	}
	return value, nil
}
