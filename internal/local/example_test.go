package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/config"
)

// What a killed run leaves is there for the same call, until somebody removes it.
// (Package cmd/gpumux/devserver has an example with a server.)
func ExampleStates() {
	state, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
	}
	defer os.RemoveAll(state)
	os.Setenv("XDG_STATE_HOME", state)
	defer os.Unsetenv("XDG_STATE_HOME")

	task, err := local.FindTask("", local.TaskOptions{Command: []string{"cat"}})
	if err != nil {
		fmt.Println(err)
	}
	_, _, err = local.Map(context.Background(), local.Options{Task: task,
		Server: func(context.Context, local.ServerOptions) (local.Server, error) {
			return nil, errors.New("no server in this example")
		},
	}, &starter.Map{ID: "sweep", Input: gpumux.MapInput{Range: &gpumux.Range{End: 100}}})
	fmt.Println(err)
	states, _ := local.States()
	for _, s := range states {
		fmt.Println(s.ID, s.State, s.Remove())
	}
	states, _ = local.States()
	fmt.Println(len(states))
	// Output:
	// no server in this example
	// sweep interrupted <nil>
	// 0
}

func ExamplePools() {
	pools, _, _ := local.Pools(nil, []string{"cpu"}, config.Pool{Slots: 2, Memory: 8 << 30})
	fmt.Println(pools[0].Name, pools[0].Devices, pools[0].Slots, pools[0].Memory)
	// Output: cpu [cpu] 2 8GiB
}

func ExampleFindTask() {
	_, err := local.FindTask("embed.py", local.TaskOptions{})
	var mistake *local.MistakeError
	fmt.Println(errors.As(err, &mistake))
	fmt.Println(err)
	// Output:
	// true
	// TASK "embed.py": write it as file.py:function, module:function or file.R:function, or give a command
}
