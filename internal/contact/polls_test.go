package contact

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPolls_ASeriesOfRefusalsCounts(t *testing.T) {
	var p Polls
	away := status.Error(codes.Unavailable, "no matching host")
	p.Note("a", away, time.Second)
	require.NoError(t, p.Refused(2*time.Second), "one refusal may be a restart")
	p.Note("a", away, 9*time.Second)
	require.EqualError(t, p.Refused(10*time.Second), "the Temporal server has given no work from queue a for 9s: "+away.Error())
	p.Note("b", nil, 10*time.Second)
	p.Note("a", status.Error(codes.Canceled, "a poll that the worker ended"), 10*time.Second)
	require.Error(t, p.Refused(10*time.Second), "another queue's answer and the end of a poll say nothing")
	require.NoError(t, p.Refused(25*time.Second), "a poll that is not refused is open")
	p.Note("a", away, 30*time.Second)
	require.NoError(t, p.Refused(31*time.Second), "a new series")
	p.Note("a", away, 38*time.Second)
	require.Error(t, p.Refused(39*time.Second))
	for _, answer := range []error{nil, errors.New("the client's own"), status.Error(codes.PermissionDenied, "")} {
		p.Note("a", away, 40*time.Second)
		p.Note("a", answer, 40*time.Second)
		require.NoError(t, p.Refused(41*time.Second))
	}
}
