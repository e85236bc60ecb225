package report

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
)

// terminal opens a pair: what is written to screen is read from control.
func terminal(t *testing.T) (control, screen *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = control.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = screen.Close() })
	return control, screen
}

func TestConsole_EscapesOnlyWhereTheyAreObeyed(t *testing.T) {
	for kind, want := range map[string]string{"xterm": "\r\x1b[Kembed no items", "dumb": "done\r\n", "": "done\r\n"} {
		t.Run("TERM="+kind, func(t *testing.T) {
			t.Setenv("TERM", kind)
			control, screen := terminal(t)
			c := NewConsole(screen)
			NewBar(c).Show(gpumux.Progress{Task: "embed", Phase: gpumux.PhaseRunning})
			c.Say("done")
			require.Equal(t, kind == "xterm", c.Redraws())
			require.NoError(t, screen.Close())
			got, err := io.ReadAll(control)
			require.ErrorIs(t, err, unix.EIO, "the end of a terminal that nobody has open")
			require.Contains(t, string(got), want)
			if kind != "xterm" {
				require.NotContains(t, string(got), "\x1b")
			}
		})
	}
}
