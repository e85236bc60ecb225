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

// wardenScript waits until its standard input ends, which happens when the worker is gone however it died, and then kills
// every process that carries the worker's token. The kernel kills the task processes themselves at that moment; this is for
// their descendants. It kills whole groups, of which none can get away by forking, except the worker's own. It looks again
// until several looks find nothing, because a process may fork while it is being found.
const wardenScript = `trap '' TERM INT HUP
read -r _
n=0
quiet=0
while [ $n -lt 200 ] && [ $quiet -lt 5 ]; do
  quiet=$((quiet+1))
  for e in $(grep -lzxF "$1" /proc/[0-9]*/environ 2>/dev/null); do
    quiet=0
    p=${e#/proc/}; p=${p%/environ}
    read -r stat 2>/dev/null <"/proc/$p/stat" || continue
    group=${stat##*) }; group=${group#* * }; group=${group%% *}
    [ "$group" = "$2" ] || kill -9 -- "-$group" 2>/dev/null
    kill -9 "$p" 2>/dev/null
  done
  n=$((n+1))
done`

// watched is what ties the worker to its warden: the token that its task processes carry, and the pipe whose end tells that
// the worker is gone. The kernel closes it, not the collector, which would take a file that nothing holds.
type watched struct {
	token string
	pipe  *os.File
}

// warden starts the one helper process of this worker. It is a shell, not this program again, because it must be small and
// needs nothing of it.
var warden = sync.OnceValues(func() (*watched, error) {
	token := rand.Text()
	hold, give, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe to the warden: %w", err)
	}
	defer hold.Close()
	cmd := exec.Command("/bin/sh", "-c", wardenScript, "gpumux-warden", workerToken+"="+token, strconv.Itoa(syscall.Getpgrp()))
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Stdin = hold
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		give.Close()
		return nil, fmt.Errorf("start the warden, which needs /bin/sh: %w", err)
	}
	go cmd.Wait()
	return &watched{token, give}, nil
})
