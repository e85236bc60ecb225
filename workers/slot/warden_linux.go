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
// is stopped, are nothing to wait for, but others of their group may live. Some shells take no -- after kill -9, and to all of
// them -0 and -1 are not groups.
//
// The kernel tells a process's limits at once, so what has the number goes first. To read an environment waits for whoever maps
// memory in that process, which may be anybody's and take long. So the environments are read in parts, each by a process of its
// own; where a part does not end soon, each of its environments has one. A sweep awaits those that still hang for a while, and
// ends without them: whoever reads one kills that process when it comes to it.
const wardenScript = `trap '' TERM INT HUP
token=$1 number=$2 own=$3
numbered() {
  [ "$number" = 0 ] || grep -lE "^Max file locks +[0-9]+ +$number " /proc/[0-9]*/limits
}
slay() {
  p=${1#/proc/}; p=${p%/*}
  read -r stat 2>/dev/null <"/proc/$p/stat" || return 1
  state=${stat##*) }
  group=${state#* * }; group=${group%% *}
  [ "$group" = "$own" ] || [ "$group" -le 1 ] || kill -9 "-$group" 2>/dev/null
  case $state in [ZX]*) return 1 ;; esac
  kill -9 "$p" 2>/dev/null
  return 0
}
read_environs() {
  found=1
  for e in $(grep -lzxF "$token" "$@" 2>/dev/null); do
    slay "$e" && found=0
  done
  return $found
}
runs() {
  read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
  case ${stat##*) } in [ZX]*) return 1 ;; ?" $$ "*) return 0 ;; esac
  return 1
}
ended() {
  polls=0
  while runs "$1"; do
    [ $polls -lt 25 ] || return 1
    polls=$((polls+1))
    echo .
    sleep 0.01 || sleep 1
  done
}
look() {
  parts= hanging=
  for each in $hung; do
    if runs "${each#*=}"; then
      hanging="$hanging $each"
    else
      wait "${each#*=}" && quiet=0
    fi
  done
  hung=$hanging
  set --
  for e in /proc/[0-9]*/environ; do
    case "$hung " in *" $e="*) continue ;; esac
    set -- "$@" "$e"
    [ $# -lt 32 ] || { part "$@"; set --; }
  done
  [ $# = 0 ] || part "$@"
  for each in $parts; do
    job=${each%%=*}
    if ended "$job"; then
      wait "$job" && quiet=0
      continue
    fi
    echo .
    kill -9 "$job"
    wait "$job"
    rest=${each#*=}
    while [ -n "$rest" ]; do
      e=/proc/${rest%%,*}/environ rest=${rest#*,}
      read_environs "$e" >/dev/null &
      hung="$hung $e=$!"
    done
  done
}
part() {
  read_environs "$@" >/dev/null &
  list=
  for e; do e=${e#/proc/}; list=$list${e%/*},; done
  parts="$parts $!=$list"
}
sweep() {
  n=0 quiet=0 patience=20 hung=
  while [ $n -lt 200 ] && [ $quiet -lt 5 ]; do
    n=$((n+1))
    quiet=$((quiet+1))
    echo .
    for e in $(numbered 2>/dev/null); do
      slay "$e" && quiet=0
    done
    look
    if [ -n "$hung" ] && [ $patience -gt 0 ]; then
      quiet=0
      patience=$((patience-1))
      sleep 0.1 || sleep 1
    fi
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
		if err := startLeader(cmd, wardenSpawner()); err != nil {
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
