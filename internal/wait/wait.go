// Package wait lets tests wait for a condition.
//
// It owns the loop, which runs on the test's own goroutine, so that the condition itself
// may fail the test. It never ends a condition that hangs.
package wait

import (
	"fmt"
	"testing"
	"time"
)

// For asks again and again whether a condition holds, and fails the test if it does not
// within the limit. What describes the condition, as the arguments of fmt.Sprintf.
func For(t testing.TB, condition func() bool, limit, every time.Duration, what ...any) {
	t.Helper()
	for end := time.Now().Add(limit); !condition(); time.Sleep(every) {
		if !time.Now().After(end) {
			continue
		}
		text := fmt.Sprintf("it did not come to it within %s", limit)
		if len(what) > 0 {
			text += ": " + fmt.Sprintf(fmt.Sprint(what[0]), what[1:]...)
		}
		t.Fatal(text)
	}
}
