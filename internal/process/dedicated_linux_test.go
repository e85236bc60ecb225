package process

import (
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// A program that runs tasks beside other work stays as it is until it asks for more.
func TestDedicate_OnlyThenTheProgramChanges(t *testing.T) {
	const alone = "GPUMUX_TEST_ALONE"
	if os.Getenv(alone) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), alone+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	state := func() [2]int {
		dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		require.NoError(t, err)
		var subreaper int32
		require.NoError(t, unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&subreaper)), 0, 0, 0))
		return [2]int{dumpable, int(subreaper)}
	}
	p, err := New(0, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, p.Start(Command{Argv: []string{"true"}, Env: os.Environ()}))
	p.Follow(func() {})
	<-p.Exited
	p.Kill()
	require.Equal(t, [2]int{1, 0}, state())
	require.False(t, Dedicated())
	Dedicate()
	require.Equal(t, [2]int{0, 1}, state())
}
