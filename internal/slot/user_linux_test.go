package slot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/runtimes"
	"github.com/gpumux/gpumux/internal/slot"
)

// nobody is a user that every system has and that owns nothing.
const nobody = 65534

// peeping tries to see what a task must not see of its worker.
const peeping = `
import gpumux, os, resource, subprocess

def look(path):
    try:
        with open(path, "rb") as file:
            return "read " + file.read().decode(errors="replace")
    except OSError as error:
        return type(error).__name__

def peep(item):
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    child = subprocess.run(["id", "-u"], capture_output=True, text=True)
    return {"environ": look("/proc/%d/environ" % item["worker"]), "memory": look("/proc/%d/maps" % item["worker"]),
            "secret": look(item["secret"]), "uid": os.getresuid(), "gid": os.getresgid(), "groups": os.getgroups(),
            "home": os.path.expanduser("~"), "env": dict(os.environ), "caps": status["CapEff"].strip(), "prm": status["CapPrm"].strip(),
            "nnp": status["NoNewPrivs"].strip(), "core": resource.getrlimit(resource.RLIMIT_CORE), "child": child.stdout.strip()}

def save(item):
    gpumux.save("a", b"mine")
    return item

def stray(item):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv("/bin/sleep", ["sleep", "600"])
        os._exit(0)
    os.wait()
    return os.getpid()

def hang(item):
    os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "600")
    __import__("time").sleep(600)
`

// glimpse is what peep saw.
type glimpse struct {
	Environ, Memory, Secret, Home, Caps, Prm, NNP, Child string
	UID, GID                                             []int
	Groups                                               []int
	Env                                                  map[string]string
	Core                                                 []int64
}

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

func peep(t *testing.T, s *slot.Slot, task launch.Task, secret string) (saw glimpse) {
	t.Helper()
	got, err := run(t, s, task, calls.Call{Items: values(map[string]any{"worker": os.Getpid(), "secret": secret})})
	require.NoError(t, err)
	require.Nil(t, got[0].Fault)
	require.NoError(t, json.Unmarshal(got[0].Value, &saw))
	return saw
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
		saw := peep(t, s, launch.Task{Name: "peep", Python: "peeping.py:peep", Dir: dir, Mode: mode}, "/nowhere")
		require.Equal(t, "PermissionError", saw.Environ, mode)
		require.Equal(t, "PermissionError", saw.Memory, mode)
	}
	command := launch.Task{Name: "command", Command: []string{"/bin/sh", "-c", "cat /proc/$PPID/environ; :"}, Text: true}
	got, err := run(t, s, command, calls.Call{Items: values(1)})
	require.NoError(t, err)
	require.JSONEq(t, `""`, string(got[0].Value))
	require.Contains(t, got[0].Printed, "Permission denied")
}

func TestSlot_RunsAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		require.ErrorContains(t, process.CheckUsers(), "CAP_SETUID")
		return
	}
	require.NoError(t, process.CheckUsers())
	dir := open(t)
	secret := filepath.Join(t.TempDir(), "credentials")
	require.NoError(t, os.WriteFile(secret, []byte("aws_secret"), 0o600))
	python := anyonesPython(t)
	path, err := runtimes.Python(dir)
	require.NoError(t, err)
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: path, Home: "/root", Grace: 300 * time.Millisecond})
	before := descendants(t)
	as := &process.User{Name: "nobody", UID: nobody, GID: nobody, Groups: []uint32{nobody}, Home: dir}
	task := func(function string, mode gpumux.Mode) launch.Task {
		return launch.Task{Name: function, Python: "peeping.py:" + function, Dir: dir, Interpreter: python, User: as, Mode: mode}
	}
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		saw := peep(t, s, task("peep", mode), secret)
		require.Equal(t, "PermissionError", saw.Environ)
		require.Equal(t, "PermissionError", saw.Memory)
		require.Equal(t, "PermissionError", saw.Secret)
		require.Equal(t, []int{nobody, nobody, nobody}, saw.UID)
		require.Equal(t, []int{nobody, nobody, nobody}, saw.GID)
		require.Equal(t, []int{nobody}, saw.Groups)
		require.Equal(t, strconv.Itoa(nobody), saw.Child)
		require.Equal(t, "1", saw.NNP)
		require.Equal(t, strings.Repeat("0", 16), saw.Caps)
		require.Equal(t, strings.Repeat("0", 16), saw.Prm)
		require.Equal(t, []int64{0, 0}, saw.Core)
		require.Equal(t, dir, saw.Home)
		require.Equal(t, "nobody", saw.Env["USER"])
		for _, name := range []string{"XDG_CACHE_HOME", "PYTHONUSERBASE", "SHELL"} {
			require.NotContains(t, saw.Env, name)
		}
	}
	files := kept{}
	saved, err := run(t, s, task("save", gpumux.ModePersistent), calls.Call{Items: values("a"), Keep: files.keep})
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, saved[0].Files)
	require.Equal(t, kept{"0/a": "mine"}, files)
	command := launch.Task{Name: "id", Command: []string{"/bin/sh", "-c", "id -u"}, Dir: dir, User: as}
	got, err := run(t, s, command, calls.Call{Items: values(1)})
	require.NoError(t, err)
	require.JSONEq(t, strconv.Itoa(nobody), string(got[0].Value))

	// The worker also ends the processes that it leaves, although another user owns them.
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		_, err := run(t, s, task("stray", mode), calls.Call{Items: values(1)})
		require.NoError(t, err)
		_, err = run(t, s, task("hang", mode), calls.Call{Timeout: 300 * time.Millisecond, Items: values(1)})
		require.Equal(t, gpumux.FaultTimeout, fault(t, err).Kind)
	}
	closed := filepath.Join(t.TempDir(), "closed")
	require.NoError(t, os.Mkdir(closed, 0o700))
	shut := command
	shut.Dir = closed
	_, err = run(t, s, shut, calls.Call{Items: values(1)})
	f := fault(t, err)
	require.Equal(t, gpumux.FaultBadInput, f.Kind)
	require.Contains(t, f.Hint, "the task's user may enter that")

	require.NoError(t, s.Stop(context.Background()))
	require.ElementsMatch(t, before, descendants(t))
	require.Empty(t, processesOf(t, nobody, "sleep"))
}

// processesOf are the processes of a user that run a program.
func processesOf(t *testing.T, uid int, program string) (found []string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, dir := range dirs {
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		if strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", uid)) && strings.HasPrefix(string(status), "Name:\t"+program+"\n") {
			found = append(found, dir)
		}
	}
	return found
}

func TestSlot_ATaskHasAHomeOfItsOwn(t *testing.T) {
	worker, own := t.TempDir(), t.TempDir()
	t.Setenv("HOME", worker)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("PYTHONUSERBASE", "")
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t), Home: own})
	defer s.Stop(context.Background())
	env := func(task launch.Task) (env map[string]string) {
		got, err := run(t, s, task, calls.Call{Items: values(1)})
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(got[0].Value, &env))
		return env
	}
	task := python(folder(t), "environ")
	saw := env(task)
	require.Equal(t, own, saw["HOME"])
	require.Equal(t, filepath.Join(worker, ".cache"), saw["XDG_CACHE_HOME"], "models that were downloaded are there")
	require.Equal(t, filepath.Join(worker, ".local"), saw["PYTHONUSERBASE"], "so are packages installed for the user")
	task.PassEnv = []string{"HOME"}
	require.Equal(t, worker, env(task)["HOME"], "unless it is asked for")
	task.Env = map[string]string{"HOME": "/srv/home"}
	require.Equal(t, "/srv/home", env(task)["HOME"])
}
