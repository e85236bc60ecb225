package contract

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// Items run on for contact even if the last answered heartbeat is as old as can be, or
// there was none since the chunk was handed out.
func TestTimeoutOf(t *testing.T) {
	for contact, pause := range map[time.Duration]time.Duration{
		0: HeartbeatEvery, MinContact: 3 * time.Second, Contact: HeartbeatEvery, 40 * time.Second: HeartbeatEvery,
		time.Minute: 15 * time.Second, MaxContact: 15 * time.Minute,
	} {
		timeout := TimeoutOf(gpumux.Duration(contact))
		require.Equal(t, pause, PauseOf(timeout), contact)
		require.GreaterOrEqual(t, timeout-Ending-Arrival-pause, contact)
	}
	require.Equal(t, HeartbeatTimeout, TimeoutOf(gpumux.Duration(Contact)))
	require.Equal(t, HeartbeatEvery, PauseOf(0), "no timeout")
	require.Equal(t, 480*time.Millisecond, PauseOf(2*time.Second), "of a workflow with a timeout")
}

// Many chunks in flight heartbeat so seldom that the server can take it.
func TestTimeoutAbreast(t *testing.T) {
	short := gpumux.Duration(MinContact)
	require.Equal(t, HeartbeatTimeout, TimeoutAbreast(0, 500))
	require.Equal(t, TimeoutOf(short), TimeoutAbreast(short, 150))
	for _, contact := range []gpumux.Duration{0, short, gpumux.Duration(MaxContact)} {
		for _, chunks := range []int{151, 501, 1000} {
			timeout := TimeoutAbreast(contact, chunks)
			require.GreaterOrEqual(t, PauseOf(timeout), time.Duration(chunks)*time.Second/beatsPerSecond)
			require.GreaterOrEqual(t, timeout-Ending-Arrival-PauseOf(timeout), time.Duration(contact))
		}
	}
}
