package slot

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// wardenScript is what both parts of a warden know: a sweep kills every process that carries one of the fence's marks. It kills
// whole groups, of which none can get away by forking, except the worker's own. It looks again until several looks find nothing,
// because a process may fork while it is being found. Those that have ended and are not reaped, as nobody does while the worker
// is stopped, are nothing to wait for, but others of their group may live.
const wardenScript = `trap '' TERM INT HUP
token=$1 number=$2 own=$3
marked() {
  grep -lzxF "$token" /proc/[0-9]*/environ
  [ "$number" = 0 ] || grep -lE "^Max file locks +[0-9]+ +$number " /proc/[0-9]*/limits
}
sweep() {
  n=0
  quiet=0
  while [ $n -lt 200 ] && [ $quiet -lt 5 ]; do
    quiet=$((quiet+1))
    for e in $(marked 2>/dev/null); do
      p=${e#/proc/}; p=${p%/*}
      read -r stat 2>/dev/null <"/proc/$p/stat" || continue
      state=${stat##*) }
      group=${state#* * }; group=${group%% *}
      [ "$group" = "$own" ] || kill -9 -- "-$group" 2>/dev/null
      case $state in [ZX]*) continue ;; esac
      quiet=0
      kill -9 "$p" 2>/dev/null
    done
    n=$((n+1))
  done
}
`

// sweeperScript is the part for a worker that is gone, however it died: its standard input ends then. The kernel kills the task
// processes themselves at that moment; this is for their descendants.
const sweeperScript = wardenScript + `read -r _
sweep`

// fencerScript is the part for a worker that is stopped. It sleeps until the deadline in descriptor 3, in hundredths of a second of
// /proc/uptime, and looks whether it was put off meanwhile, as it is for as long as the worker runs and the server answers. While
// it has one it writes a dot a second. A deadline of 0 means that no items run; it then waits for a line. Lines other than a dot
// are answered, so that the worker knows that no sweep is under way.
const fencerScript = wardenScript + `swept=0
while read -r line; do
  [ "$line" = . ] || echo "$line"
  while read -r due </proc/self/fd/3 && [ "$due" -gt 0 ] && [ "$due" != "$swept" ]; do
    echo .
    read -r up _ </proc/uptime
    left=$((due - ${up%.*}${up#*.}))
    if [ $left -ge 100 ]; then
      sleep 1
    elif [ $left -gt 0 ]; then
      [ $left -gt 9 ] || left=0$left
      sleep "0.$left" || sleep 1
    else
      sweep
      swept=$due
    fi
  done
done 2>/dev/null`

// warden is one pair of helper processes. They are shells, not this program again, because they must be small and need nothing
// of it.
type warden struct {
	started time.Time
	// pipe ends when the worker is gone. The kernel closes it, not the collector, which would take a file that nothing holds.
	pipe *os.File
	line *line
	// parts are the processes, each the leader of a group.
	parts []int
	// failed has what first became of a part; done ends when none is left.
	failed chan string
	done   sync.WaitGroup
}

// startWarden starts a pair that knows processes by these marks.
func startWarden(token string, number uint64) (*warden, error) {
	w := &warden{started: time.Now(), failed: make(chan string, 2)}
	hold, give, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe to the warden: %w", err)
	}
	defer hold.Close()
	w.pipe = give
	ours, theirs, err := newLine()
	if err != nil {
		give.Close()
		return nil, fmt.Errorf("line to the warden: %w", err)
	}
	defer closeAll(theirs)
	w.line = ours
	part := func(script string, attr syscall.SysProcAttr, in, out *os.File, extra ...*os.File) error {
		cmd := exec.Command("/bin/sh", "-c", script, "gpumux-warden", workerToken+"="+token, strconv.FormatUint(number, 10),
			strconv.Itoa(syscall.Getpgrp()))
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
		cmd.ExtraFiles, attr.Setsid = extra, true
		if cmd.Stdin = in; out != nil {
			cmd.Stdout = out
		}
		cmd.SysProcAttr = &attr
		if err := startLeader(cmd); err != nil {
			return fmt.Errorf("start the warden, which needs /bin/sh: %w", err)
		}
		w.parts = append(w.parts, cmd.Process.Pid)
		w.done.Go(func() { w.failed <- awaitPart(cmd.Process) })
		return nil
	}
	if err = part(sweeperScript, syscall.SysProcAttr{}, hold, nil); err == nil {
		// Of a worker that is gone, the other part ends everything.
		err = part(fencerScript, syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, theirs[0], theirs[1], theirs[2])
	}
	if err != nil {
		w.end()
		return nil, err
	}
	return w, nil
}

// awaitPart blocks until a part of a warden has ended or was stopped, ends it, and says what it was.
func awaitPart(part *os.Process) (why string) {
	const stopped = 5 // CLD_STOPPED
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, part.Pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	if info.Code == stopped {
		killGroup(part.Pid, syscall.SIGKILL)
		await(part)
		return "it was stopped by a signal"
	}
	return fmt.Sprintf("it ended: %v", await(part))
}

// halted says whether a part is stopped in a way that its parent is not told of: by a debugger.
func (w *warden) halted() bool {
	for _, pid := range w.parts {
		if state, _ := condition(pid); state == 't' || state == 'T' {
			return true
		}
	}
	return false
}

// end ends both parts without a sweep. They are gone when done is.
func (w *warden) end() {
	kin.Lock() // a number that is known as a leader's is not reaped meanwhile
	for _, pid := range w.parts {
		if leads(pid) {
			killGroup(pid, syscall.SIGKILL)
		}
	}
	kin.Unlock()
	w.pipe.Close()
	w.line.close()
}
