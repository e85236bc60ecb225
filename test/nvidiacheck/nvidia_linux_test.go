package nvidiacheck

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/mps"
	"github.com/gpumux/gpumux/internal/sharing"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// -update writes what the libraries answer into the test data of the packages.
var update = flag.Bool("update", false, "write the answers down")

const root = "../.."

func TestMain(m *testing.M) { os.Exit(programtest.Main(m)) }

// series calls a test for each driver series in the folder that GPUMUX_NVIDIA names.
func series(t *testing.T, test func(t *testing.T, series string)) {
	folder := os.Getenv("GPUMUX_NVIDIA")
	all, _ := filepath.Glob(filepath.Join(folder, "*", "ready"))
	if folder == "" || len(all) == 0 {
		rig.Because(t, rig.NVIDIA, "make nvidia-check fetches them")
	}
	for _, ready := range all {
		folder, err := filepath.Abs(filepath.Dir(ready))
		require.NoError(t, err)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Setenv("LD_LIBRARY_PATH", filepath.Join(folder, "lib"))
			t.Setenv("PATH", filepath.Join(folder, "bin")+":"+os.Getenv("PATH"))
			test(t, folder)
		})
	}
}

// written holds an answer to what is written down in a package's test data.
func written(t *testing.T, path, answer string) {
	t.Helper()
	path = filepath.Join(root, path)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(answer), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), answer, path)
}

func python() string { return cmp.Or(os.Getenv("GPUMUX_TEST_PYTHON"), "python3") }

func TestNVIDIA_Answers(t *testing.T) {
	series(t, func(t *testing.T, folder string) {
		for library, data := range map[string]string{"cuda": "internal/diagnosis", "nvml": "gpu"} {
			answers, err := exec.Command(python(), "answers.py", library, filepath.Join(folder, "lib")).Output()
			require.NoError(t, err)
			written(t, fmt.Sprintf("%s/testdata/%s-%s.txt", data, library, filepath.Base(folder)), string(answers))
		}
	})
}

// start starts the daemon and returns it when it answers, with its output.
func start(t *testing.T) (mps.Daemon, *programtest.Screen) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps") // paths of sockets are short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	d, screen := mps.Daemon{Pipe: dir}, &programtest.Screen{}
	argv := d.Argv()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = d.Environ(), screen, screen
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	rig.Wait(t, func() bool { return mps.Listens(dir) }, time.Minute, 10*time.Millisecond)
	return d, screen
}

// The daemon takes connections, and with -f its log is its output.
func TestNVIDIA_MPSDaemon(t *testing.T) {
	series(t, func(t *testing.T, _ string) {
		d, screen := start(t)
		_, err := gputest.AskMPS(t.Context(), d, "get_server_list")
		require.NoError(t, err)
		require.Contains(t, screen.String(), "Cmd:get_server_list")

		// A server that finds no device says so on the daemon's output, too.
		_, _ = gputest.AskMPS(t.Context(), d, fmt.Sprintf("start_server -uid %d", os.Getuid()))
		rig.Wait(t, func() bool { return strings.Contains(screen.String(), "no CUDA-capable device") }, time.Minute, 10*time.Millisecond)
	})
}

func TestNVIDIA_SharingByMPS(t *testing.T) {
	device := gpu.Device{Kind: gpu.KindGPU, UUID: "GPU-00000000-0000-0000-0000-000000000000", Memory: 16 << 30}
	series(t, func(t *testing.T, _ string) {
		t.Setenv(mps.PipeVariable, "")
		h := &sharing.Host{Log: zap.NewNop()}
		_, err := sharing.MPS.Prepare(t.Context(), h, sharing.Use{Slots: 2, PerSlot: 1, Devices: []gpu.Device{device}})
		require.NoError(t, errors.Join(err, h.Close()))
	})
}

// run runs gpumux in an empty home and returns what it printed and its exit code.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	binary := programtest.Binary(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(cmd.Dir, "double.py"), []byte("def double(x):\n    return 2 * x\n"), 0o600))
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, "XDG_STATE_HOME="+cmd.Dir)
	var printed, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complaint
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return printed.String(), complaint.String(), cmd.ProcessState.ExitCode()
}

// The commands say why there is no GPU in the words of the driver's library.
func TestNVIDIA_Commands(t *testing.T) {
	// As root NVIDIA's library makes /dev/nvidiactl where no driver has.
	if files, _ := filepath.Glob("/dev/nvidia[0-9]*"); len(files) > 0 {
		rig.Because(t, rig.Staged, "this machine has a driver")
	}
	series(t, func(t *testing.T, folder string) {
		out, stderr, code := run(t, "gpus", "--json")
		require.Zero(t, code, "%s", stderr)
		var report struct{ Reason string }
		require.NoError(t, json.Unmarshal([]byte(out), &report))
		require.Contains(t, report.Reason, "Driver Not Loaded")
		require.Contains(t, report.Reason, "modprobe nvidia")
		out, stderr, code = run(t, "map", "double.py:double", "--range", "0:3", "--local", "--out", "-")
		require.Zero(t, code, "%s", stderr)
		require.Equal(t, "{\"index\":0,\"value\":0}\n{\"index\":1,\"value\":2}\n{\"index\":2,\"value\":4}\n", out)
	})
}
