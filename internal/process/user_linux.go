package process

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// conceal hides this program's environment and memory, which hold credentials, from
// processes of the same user. It leaves no core dump, and only root attaches a debugger.
func conceal() { unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// dropAmbient withholds the worker's own capabilities from this thread's children.
func dropAmbient() { unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) }

// dropPrivileges also keeps them from getting more through programs such as sudo.
func dropPrivileges() {
	dropAmbient()
	unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// restrainScript lowers limits, marks itself as in mark_linux.go and becomes the program.
// The worker, which is another user, would need one more capability for it. Shells have
// different letters for the same limit. The limit on processes and threads, which counts
// all of that user, protects the host from endless forks; libraries with a thread per
// processor stay far below it.
const restrainScript = `{
  ulimit -c 0
  ulimit -r 0
  ulimit -u 32768 || ulimit -p 32768
} 2>/dev/null
` + markScript

// markScript is the part of restrainScript for a program with the rights of this one.
const markScript = `[ "$1" = 0 ] || ulimit -S -w "$1" 2>/dev/null || ulimit -S -x "$1" 2>/dev/null
shift
exec "$@"`

// first makes a shell run a script with the mark before it becomes the program, so that
// all descendants inherit what the script sets.
func first(cmd *exec.Cmd, script string, mark uint64) error {
	path, err := exec.LookPath(cmd.Path) // the shell's own message is less clear
	if err := cmp.Or(cmd.Err, err); err != nil {
		return err
	}
	cmd.Args = append([]string{"sh", "-c", script, "gpumux", strconv.FormatUint(mark, 10), path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	return nil
}

// needed are the capabilities to start, measure and end processes of other users.
var needed = []struct {
	number int
	name   string
}{
	{unix.CAP_SETUID, "SETUID"}, {unix.CAP_SETGID, "SETGID"}, {unix.CAP_KILL, "KILL"}, {unix.CAP_SYS_PTRACE, "SYS_PTRACE"},
}

// CheckUsers says why this program cannot run tasks as other users, or nil. It must
// start, measure and end their processes, even when the worker is gone.
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
