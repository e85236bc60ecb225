package starter_test

import (
	"fmt"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

// Many failures have few causes.
func ExampleCauses() {
	var causes starter.Causes
	for i := range int64(1000) {
		causes.Add(gpumux.Result{Index: i, Fault: &gpumux.Fault{
			Kind: gpumux.FaultTaskError, Class: "ValueError", Message: fmt.Sprintf("invalid literal: 'row %d'", i),
		}})
	}
	causes.Add(gpumux.Result{Index: 1000, Fault: &gpumux.Fault{Kind: gpumux.FaultTimeout, Message: "no result after 2s"}})
	for _, c := range causes.Sorted() {
		fmt.Println(c.Count, "such as item", c.Example.Index, c.Example.Fault)
	}
	// Output:
	// 1000 such as item 0 task_error: ValueError: invalid literal: 'row 0'
	// 1 such as item 1000 timeout: no result after 2s
}
