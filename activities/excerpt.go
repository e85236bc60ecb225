package activities

import (
	"fmt"
	"strings"

	"github.com/gpumux/gpumux"
)

// shortText is how many bytes of what an item printed travel in a history, and of its
// traceback. Messages are short.
const shortText = 1000

func excerpt(r gpumux.Result) gpumux.Result {
	r.Printed = endOf(r.Printed)
	if r.Fault != nil {
		fault := *r.Fault
		fault.Traceback, fault.Tail = endOf(fault.Traceback), endOf(fault.Tail)
		r.Fault = &fault
	}
	return r
}

func endOf(text string) string {
	if len(text) <= shortText {
		return text
	}
	return fmt.Sprintf("[the last %d of %d bytes]\n", shortText, len(text)) + strings.ToValidUTF8(text[len(text)-shortText:], "")
}
