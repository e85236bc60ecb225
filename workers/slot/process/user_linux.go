package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// conceal keeps the environment and the memory of this program, which hold the worker's credentials, from other processes of the
// same user: task processes among them. Only who may look into anybody's, such as root, still can. The program then leaves no core
// dump, and only root attaches a debugger.
func conceal() { unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// dropAmbient keeps the capabilities that a service manager gave the worker from what this thread starts.
func dropAmbient() { unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) }

// dropPrivileges does so, and keeps what this thread starts from getting more by way of programs such as sudo.
func dropPrivileges() {
	dropAmbient()
	unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// restrainScript lowers limits and becomes the program. A shell can, where the worker, which is another user, could not without one
// more capability. It also sets the numbers of mark_linux.go. Shells have different letters for the same limits. The number of
// processes and threads, which counts all of that user, keeps a task that forks without end from the host; it is far above what
// libraries take that start a thread per processor.
const restrainScript = `{
  ulimit -c 0
  ulimit -r 0
  ulimit -u 32768 || ulimit -p 32768
  [ "$1" = 0 ] || { ulimit -S -w "$1" && ulimit -H -w "$2"; } || { ulimit -S -x "$1" && ulimit -H -x "$2"; }
} 2>/dev/null
shift 2
exec "$@"`

// restrain lets the process of another user lower its limits before it becomes the program. They hold for its descendants too.
func restrain(cmd *exec.Cmd, mark mark) {
	path, err := exec.LookPath(cmd.Path) // the shell's word for a program that cannot be started is not as clear
	if err != nil {
		cmd.Err = err
		return
	}
	number, worker := strconv.FormatUint(mark.number, 10), strconv.FormatUint(mark.worker, 10)
	cmd.Args = append([]string{"sh", "-c", restrainScript, "gpumux", number, worker, path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

// needed are the capabilities without which processes of other users cannot be started, found and ended, by their numbers.
var needed = []struct {
	number int
	name   string
}{
	{unix.CAP_SETUID, "SETUID"}, {unix.CAP_SETGID, "SETGID"}, {unix.CAP_KILL, "KILL"}, {unix.CAP_SYS_PTRACE, "SYS_PTRACE"},
}

// CheckUsers says why this program cannot run tasks as other users, or nil. It takes more than to start them: their descendants
// have to be found and ended, also when the worker is gone.
func CheckUsers() error {
	field := "CapEff:"
	if os.Geteuid() != 0 {
		field = "CapAmb:" // the sweeper, a program of its own, has no others
	}
	status, err := os.ReadFile(proc + "/self/status")
	if err != nil {
		return fmt.Errorf("read which capabilities this worker has: %w", err)
	}
	var have uint64
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(field)); ok {
			have, _ = strconv.ParseUint(string(bytes.TrimSpace(rest)), 16, 64)
		}
	}
	var missing []string
	for _, each := range needed {
		if have>>each.number&1 == 0 {
			missing = append(missing, "CAP_"+each.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this worker lacks %s; run it as root, give them with AmbientCapabilities= (systemd) or --cap-add (containers), "+
			"or leave user out", strings.Join(missing, ", "))
	}
	return nil
}
