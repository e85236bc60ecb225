package template

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/wire"
)

// The answers of a template, and what becomes of them.
func TestTemplate_Answers(t *testing.T) {
	for answer, want := range map[string]string{
		"pid 7": "", "failed OSError: no": "could not fork: OSError: no", "pid x": "invalid syntax",
	} {
		ours, theirs, err := wire.Pair(syscall.SOCK_SEQPACKET)
		require.NoError(t, err)
		conn, err := net.FileConn(theirs)
		require.NoError(t, err)
		theirs.Close()
		tmp := &template{channel: ours, o: session.Options{StartLimit: forkLimit}}
		go func() {
			var request [64]byte
			conn.Read(request[:])
			conn.Write([]byte(answer))
		}()
		ask := func() (int, error) {
			null, err := os.Open(os.DevNull)
			require.NoError(t, err)
			return tmp.request(os.Stderr, null)
		}
		pid, err := ask()
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, 7, pid)
		} else {
			require.ErrorContains(t, err, want)
		}
		conn.Close()
		_, err = ask()
		require.ErrorContains(t, err, "the template ended while it forked")
		ours.Close()
	}
}
