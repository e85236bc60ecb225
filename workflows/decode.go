package workflows

import (
	"encoding/json"
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
