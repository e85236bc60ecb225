package workers

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
)

// What an activity has left for its next attempt goes only when the server has its end.
func TestReports_OnlyWhatTheServerHasTaken(t *testing.T) {
	var r reports
	done := make(chan string, 2)
	r.after([]byte("taken"), func() { done <- "taken" })
	r.after([]byte("refused"), func() { done <- "refused" })
	r.ended([]byte("refused"), serviceerror.NewNotFound("a newer attempt"))
	r.ended([]byte("another"), nil)
	r.ended([]byte("taken"), nil)
	r.ended([]byte("refused"), nil)
	r.doing.Wait()
	require.Len(t, done, 1)
	require.Equal(t, "taken", <-done)
}
