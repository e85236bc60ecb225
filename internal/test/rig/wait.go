package rig

import (
	"fmt"
	"testing"
	"time"
)

// Wait asks over and over, on the test's goroutine, whether a condition holds, and fails
// the test after the limit. What is for fmt.Sprintf.
func Wait(t testing.TB, condition func() bool, limit, every time.Duration, what ...any) {
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
