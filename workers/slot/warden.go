package slot

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// wardenScript ends task processes that the worker itself cannot end. It has two parts.
//
// The first waits until its standard input ends, which happens when the worker is gone however it died. The kernel kills the
// task processes themselves at that moment; this is for their descendants.
//
// The second is the fence: it sleeps until the deadline in descriptor 3, in hundredths of a second of /proc/uptime, and looks
// whether it was put off meanwhile, as it is for as long as the worker runs and the server answers. A deadline of 0 means that no
// items run; it then waits for a line on descriptor 4. Lines other than a dot are answered on descriptor 5, so that the worker
// knows that no sweep is under way.
//
// A sweep kills every process that carries one of the worker's marks. It kills whole groups, of which none can get away by
// forking, except the worker's own. It looks again until several looks find nothing, because a process may fork while it is
// being found. Those that have ended and are not reaped, as nobody does while the worker is stopped, are nothing to wait for, but
// others of their group may live.
const wardenScript = `trap '' TERM INT HUP
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
fence() {
  swept=0
  while read -r line; do
    [ "$line" = . ] || echo "$line" >&5
    while read -r due </proc/self/fd/3 && [ "$due" -gt 0 ] && [ "$due" != "$swept" ]; do
      read -r up _ </proc/uptime
      left=$((due - ${up%.*}${up#*.}))
      if [ $left -gt 0 ]; then
        part=$((left % 100))
        [ $part -gt 9 ] || part=0$part
        sleep "$((left / 100)).$part" || sleep 1
      else
        sweep
        swept=$due
      fi
    done
  done
}
token=$1 number=$2 own=$3
fence <&4 2>/dev/null &
exec 4<&-
read -r _
sweep
kill -9 0`

// watched is what ties the worker to its warden: the marks that its task processes carry, and the pipe whose end tells that
// the worker is gone. The kernel closes it, not the collector, which would take a file that nothing holds.
type watched struct {
	token  string
	number uint64
	pipe   *os.File
	line   *line // nil where there is no fence
}

// wardens has the one that runs.
var wardens struct {
	mu  sync.Mutex
	now *watched
}

// warden starts the one helper process of this worker; what could not be started is tried again. It is a shell, not this program
// again, because it must be small and needs nothing of it.
func warden() (*watched, error) {
	wardens.mu.Lock()
	defer wardens.mu.Unlock()
	if wardens.now != nil {
		return wardens.now, nil
	}
	w := &watched{token: rand.Text(), number: workerNumber()}
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
	w.line = ours
	cmd := exec.Command("/bin/sh", "-c", wardenScript, "gpumux-warden", workerToken+"="+w.token,
		strconv.FormatUint(w.number, 10), strconv.Itoa(syscall.Getpgrp()))
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Stdin, cmd.ExtraFiles = hold, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	for _, file := range theirs {
		file.Close()
	}
	if err != nil {
		give.Close()
		ours.close()
		return nil, fmt.Errorf("start the warden, which needs /bin/sh: %w", err)
	}
	go cmd.Wait()
	wardens.now = w
	return w, nil
}
