package screen

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRedraw_InPlaceAndCutToTheTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	control, screen := terminal(t)
	require.NoError(t, unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 3, Col: 6}))
	require.NoError(t, Redraw(Visible(screen), "one\n└ twenty\nthree\n"))
	require.NoError(t, Redraw(Visible(screen), "1\n"))
	require.NoError(t, screen.Close())
	got, err := io.ReadAll(control)
	require.ErrorIs(t, err, unix.EIO, "the end of a terminal that nobody has open")
	require.Equal(t, "\x1b[Hone\x1b[K\r\n└ twen\x1b[K\r\n\x1b[J"+"\x1b[H1\x1b[K\r\n\x1b[J", string(got))
}

func TestRedraw_NotWhereEscapesAreShown(t *testing.T) {
	require.False(t, Redraws(io.Discard))
	t.Setenv("TERM", "dumb")
	_, screen := terminal(t)
	require.False(t, Redraws(Visible(screen)))
}
