package local

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dead reports whether a worker, host/pid, ran on this host and its process is gone. It is asked only about workers of a server
// whose data folder this process holds: those ran in the process that held it before, or connected to it from elsewhere.
func dead(identity string) bool {
	host, number, found := strings.Cut(identity, "/")
	here, err := os.Hostname()
	if !found || err != nil || host != here {
		return false
	}
	pid, err := strconv.Atoi(number)
	return err == nil && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
