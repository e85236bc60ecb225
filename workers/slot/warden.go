package slot

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// wardenScript waits until its standard input ends, which happens when the worker is gone however it died, and then kills
// every process that carries the worker's token. The kernel kills the task processes themselves at that moment; this is for
// their descendants. It looks again until a look finds nothing, because a process may fork while it is being found.
const wardenScript = `trap '' TERM INT HUP
read -r _
n=0
while [ $n -lt 50 ]; do
  found=
  for e in /proc/[0-9]*/environ; do
    if grep -qzxF "$1" "$e" 2>/dev/null; then
      p=${e#/proc/}; p=${p%/environ}
      kill -9 "$p" 2>/dev/null && found=1
    fi
  done
  [ -n "$found" ] || exit 0
  n=$((n+1))
done`

// warden is the one helper process of this worker and the token that its task processes carry. It is a shell, not this
// program again, because it must be small and needs nothing of it.
var warden = sync.OnceValues(func() (string, error) {
	token := rand.Text()
	hold, give, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("pipe to the warden: %w", err)
	}
	defer hold.Close()
	cmd := exec.Command("/bin/sh", "-c", wardenScript, "gpumux-warden", workerToken+"="+token)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Stdin = hold
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		give.Close()
		return "", fmt.Errorf("start the warden, which needs /bin/sh: %w", err)
	}
	// give stays open for the life of this process; the kernel closes it.
	wardenPipe = give
	go cmd.Wait()
	return token, nil
})

// wardenPipe keeps the write end from being collected.
var wardenPipe *os.File
