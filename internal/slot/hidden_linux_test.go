package slot_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
)

// nobody is a user that every system has and that owns nothing.
const nobody = 65534

// peeping tries to see what a task must not see of its worker.
const peeping = `
def look(path):
    try:
        with open(path, "rb") as file:
            return "read " + file.read().decode(errors="replace")
    except OSError as error:
        return type(error).__name__

def peep(worker):
    return [look("/proc/%d/%s" % (worker, name)) for name in ("environ", "maps")]
`

// open makes a folder that every user can enter.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpumux-user-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "peeping.py"), []byte(peeping), 0o644))
	return dir
}

// anyonesPython finds a Python that every user can start.
func anyonesPython(t *testing.T) string {
	t.Helper()
	found, err := exec.LookPath("python3")
	require.NoError(t, err)
	for _, python := range []string{found, "/usr/bin/python3", "/usr/local/bin/python3"} {
		cmd := exec.Command(python, "-c", "pass")
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if cmd.Run() == nil {
			return python
		}
	}
	t.Fatal("there is no Python that another user can start; install one in /usr/bin")
	return ""
}

// The worker's environment has credentials, and its tasks run as the same user. Root sees
// everything, so a test as root uses another user.
func TestSlot_HidesTheWorkerFromItsTasks(t *testing.T) {
	if os.Geteuid() == 0 {
		dir := open(t)
		require.NoError(t, os.Chown(dir, nobody, nobody))
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + filepath.Dir(anyonesPython(t)) + ":/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: "+t.Name())
		return
	}
	dir := open(t)
	s := newSlot(t)
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		got, err := run(t, s, launch.Task{Name: "peep", Python: "peeping.py:peep", Dir: dir, Mode: mode}, slot.Call{Work: work(os.Getpid())})
		require.NoError(t, err)
		require.JSONEq(t, `["PermissionError", "PermissionError"]`, string(got[0].Value), mode)
	}
	command := launch.Task{Name: "command", Command: []string{"/bin/sh", "-c", "cat /proc/$PPID/environ; :"}, Text: true}
	got, err := run(t, s, command, slot.Call{Work: work(1)})
	require.NoError(t, err)
	require.JSONEq(t, `""`, string(got[0].Value))
	require.Contains(t, got[0].Printed, "Permission denied")
}
