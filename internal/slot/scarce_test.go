package slot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/template"
)

// starved is a worker that can open no files for a while. It prints a line for each call.
func starved() {
	var full, none syscall.Rlimit
	if r, w, err := os.Pipe(); err != nil || syscall.Getrlimit(syscall.RLIMIT_NOFILE, &full) != nil {
		os.Exit(1)
	} else { // Go has now opened the files that it needs itself
		r.Close()
		w.Close()
	}
	none = full
	none.Cur = 3
	allow := func(limit syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			fmt.Println(err)
		}
	}
	s := slot.NewSharing(template.NewSet(nil), slot.Options{Name: "cpu/0", Device: "CPU", Runtime: os.Getenv("RUNTIME")})
	tasks := []struct {
		task launch.Task
		mode gpumux.Mode
	}{
		{task: launch.Task{Name: "command", Command: []string{"cat"}}},
		{python(os.Getenv("DIR"), "double"), gpumux.ModeFresh},
		{python(os.Getenv("DIR"), "double"), gpumux.ModePersistent},
	}
	each := func() {
		for _, each := range tasks {
			err := s.Run(context.Background(), each.task, slot.Call{Call: calls.Call{Mode: each.mode}, Work: work(1)})
			var f *gpumux.Fault
			if errors.As(err, &f) {
				fmt.Println(f.Kind, f.Op, f.Blameless, f.Hint)
			} else {
				fmt.Println(or(err))
			}
		}
	}
	allow(none)
	each()
	allow(full)
	each()
	os.Exit(0)
}

func or(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A worker that is out of files for a moment blames no item, and goes on when it can open
// files again.
func TestSlot_AWorkerWithoutFilesBlamesNoItem(t *testing.T) {
	t.Parallel()
	program := exec.Command(os.Args[0])
	program.Env = append(os.Environ(), "GPUMUX_TEST_PROGRAM=starved", "DIR="+folder(t), "RUNTIME="+runtimePath(t))
	program.Stderr = os.Stderr
	out, err := program.Output()
	require.NoError(t, err)
	short := "crash start true raise the limits on open files and processes of the worker, or use fewer slots\n"
	require.Equal(t, short+short+short+"\n\n\n", string(out))
}
