package gpu

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain also plays the processes of the tests: GPU_TEST_HOLD makes it hold that many
// bytes, say so, and wait until its standard input ends; GPU_TEST_LIBRARY opens that
// library.
func TestMain(m *testing.M) {
	var n int
	if _, err := fmt.Sscan(os.Getenv("GPU_TEST_HOLD"), &n); err == nil {
		b := make([]byte, n)
		for i := 0; i < n; i += 4096 {
			b[i] = 1
		}
		fmt.Println("holding")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(int(b[0]) - 1)
	}
	if path := os.Getenv("GPU_TEST_LIBRARY"); path != "" && playLibrary != nil {
		os.Exit(playLibrary(path))
	}
	os.Exit(m.Run())
}

// playLibrary is set where there is NVML.
var playLibrary func(path string) int

const mib = 1 << 20

// holder starts a process that holds memory, through sh so that it is a grandchild.
func holder(t *testing.T, bytes int, attr *syscall.SysProcAttr) (leader int, stop func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `"$0" & wait`, os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("GPU_TEST_HOLD=%d", bytes))
	cmd.SysProcAttr = attr
	// A background job of sh reads /dev/null, so the child is given another descriptor.
	cmd.Args[2] = `"$0" <&3 & wait`
	in, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.ExtraFiles = []*os.File{in}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, in.Close())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "holding\n", line)
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = w.Close()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	return cmd.Process.Pid, stop
}
