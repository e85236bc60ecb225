package slot

import (
	"bufio"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The warden reads no line while it waits for a deadline. However many calls begin meanwhile, it is told of each without waiting.
func TestLine_AWardenThatReadsNothingIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	ours, theirs, err := newLine()
	require.NoError(t, err)
	defer closeAll(theirs)
	defer ours.close()
	for range 100_000 {
		require.NoError(t, ours.set(Uptime()+time.Minute, true))
		require.NoError(t, ours.set(0, false))
	}
	// The first one wakes it; once it has read that, the next one is a line again.
	lines := bufio.NewReaderSize(theirs[0], 16)
	for range 2 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, ".\n", line)
		require.Zero(t, lines.Buffered(), "one line is enough")
		require.NoError(t, ours.set(Uptime()+time.Minute, true))
	}
}

// A warden that is ending many processes answers late, and says all the time that it is there.
func TestLine_AWardenThatIsBusyIsAwaited(t *testing.T) {
	t.Parallel()
	ours, theirs, err := newLine()
	require.NoError(t, err)
	defer closeAll(theirs)
	defer ours.close()
	go func() {
		ask, _ := bufio.NewReader(theirs[0]).ReadString('\n')
		busy := time.NewTicker(time.Second)
		defer busy.Stop()
		for range int(wardenLimit/time.Second) + 2 {
			<-busy.C
			fmt.Fprintln(theirs[1], ".")
		}
		fmt.Fprint(theirs[1], ask)
	}()
	require.NoError(t, ours.settle())
}
