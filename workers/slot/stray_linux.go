package slot

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// strays kills the descendants of a process that left its group: as orphans they have become children of the worker, which
// is their subreaper, and they still carry the process's token in their environment. Killing one may orphan others, so it
// goes on until none is left.
func strays(token string) {
	mark := []byte(processToken + "=" + token)
	for range 100 {
		found := false
		for _, pid := range children() {
			if _, leader := leaders.Load(pid); leader {
				continue
			}
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			switch {
			case err != nil:
			case carries(env, mark):
				found = true
				syscall.Kill(pid, syscall.SIGKILL)
				reap(group(pid))
			case len(env) == 0 && group(pid) != syscall.Getpgrp():
				// An orphan that ended by itself; nobody else waits for it.
				syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
		}
		if !found {
			return
		}
	}
}

func carries(environ, mark []byte) bool {
	for pair := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(pair, mark) {
			return true
		}
	}
	return false
}

func children() []int {
	var pids []int
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range files {
		list, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for field := range bytes.FieldsSeq(list) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func group(pid int) int {
	group, err := syscall.Getpgid(pid)
	if err != nil {
		return pid
	}
	return group
}
