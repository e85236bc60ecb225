package contract

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// Items run on for contact even if the last answered heartbeat is as old as can be.
func TestTimeoutOf(t *testing.T) {
	for contact, pause := range map[time.Duration]time.Duration{
		0: HeartbeatEvery, MinContact: HeartbeatEvery, Contact: HeartbeatEvery, time.Minute: 15 * time.Second, MaxContact: 15 * time.Minute,
	} {
		timeout := TimeoutOf(gpumux.Duration(contact))
		require.Equal(t, pause, PauseOf(timeout), contact)
		require.GreaterOrEqual(t, timeout-time.Second-pause, contact)
	}
	require.Equal(t, HeartbeatTimeout, TimeoutOf(gpumux.Duration(Contact)))
	require.Equal(t, HeartbeatEvery, PauseOf(0), "no timeout")
	require.Equal(t, 800*time.Millisecond, PauseOf(2*time.Second), "of a workflow with a timeout")
}
