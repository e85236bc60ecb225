package memory

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/workers/config"
)

// wanderer imitates tasks that set CUDA_VISIBLE_DEVICES themselves.
const wanderer = `
import os, subprocess, time

def holds(pid, mb, *devices):
    path = os.path.join(os.environ["DRIVER"], str(pid))
    with open(path + ".tmp", "w") as f: f.writelines("%s %d\n" % (uuid, mb << 20) for uuid in devices)
    os.rename(path + ".tmp", path)
def use(item):
    pid = os.getpid()
    if item.get("child"):
        pid = subprocess.Popen(["sleep", "600"], env={}).pid
    holds(pid, item["mb"], *item["on"])
    while not os.path.exists(item["until"]): time.sleep(0.01)
`

type wandering struct {
	MB    int      `json:"mb"`
	On    []string `json:"on"`
	Child bool     `json:"child"`
	Until string   `json:"until"`
}

// looksEverywhere returns the name of a file that appears once each GPU has been read
// after this many bytes of a process were seen.
func (b *workbench) looksEverywhere(bytes int64) string {
	file, first := filepath.Join(b.dir, "looked"), b.sees(bytes)
	go func() {
		var since time.Time
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for missing := 1; missing > 0; {
			select {
			case <-b.t.Context().Done():
				return
			case <-tick.C:
			}
			if _, err := os.Stat(first); err != nil {
				continue
			} else if since.IsZero() {
				since = time.Now()
			}
			b.mu.Lock()
			missing = 0
			for uuid := range b.gpus {
				if !b.readings[uuid].asked.After(since) || b.readings[uuid].pending {
					missing++
				}
			}
			b.mu.Unlock()
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			b.t.Error(err)
		}
	}()
	return file
}

func TestWatch_EndsWhatUsesAnotherDevice(t *testing.T) {
	machine := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{}, {Name: "NVIDIA Hidden"}, {Instances: []gputest.Instance{{Number: 0}, {Number: 1}}}}})
	t.Setenv("CUDA_VISIBLE_DEVICES", "0,2")
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: machine.Library})
	require.NoError(t, err)
	defer inventory.Close()
	const first, hidden, split = "GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001",
		"GPU-00000000-0000-0000-0000-000000000002"
	const instance, other = "MIG-00000000-0000-0000-0002-000000000000", "MIG-00000000-0000-0000-0002-000000000001"
	require.Len(t, inventory.GPUs(), 4)
	e, _ := enforcer(t, inventory, config.Pool{Name: "gpu", Devices: gpu.Selection{"0"}})
	require.Len(t, e.watch.gpus, 4, "not only those of pools")
	for name, test := range map[string]struct {
		slot    string
		uses    wandering
		message string
	}{
		"a GPU that the worker does not see": {first, wandering{MB: 512, On: []string{first, hidden}},
			"held 512MiB on GPU 1 (" + hidden + ", NVIDIA Hidden), which is not the device of its slot, " + first},
		"by a child":                   {first, wandering{MB: 512, On: []string{hidden}, Child: true}, "held 512MiB on GPU 1 "},
		"a GPU from the CPU":           {gpu.CPU, wandering{MB: 512, On: []string{first}}, "not the device of its slot, CPU"},
		"another instance":             {instance, wandering{MB: 512, On: []string{other}}, "held 512MiB on GPU 2:1 "},
		"an instance, seen on its GPU": {instance, wandering{MB: 512, On: []string{instance, split}}, ""},
		"two GPUs of its slot":         {first + "," + hidden, wandering{MB: 512, On: []string{first, hidden}}, ""},
		"a look at another GPU":        {first, wandering{MB: 8, On: []string{first, hidden}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newWorkbench(t, inventory)
			b.mu.Lock()
			b.lookForForeign(inventory.GPUs())
			b.mu.Unlock()
			b.env["DRIVER"] = machine.File + ".d"
			require.NoError(t, os.WriteFile(filepath.Join(b.dir, "tasks.py"), []byte(wanderer), 0o644))
			if test.uses.Until = filepath.Join(b.dir, "never"); test.message == "" {
				test.uses.Until = b.looksEverywhere(int64(test.uses.MB) << 20)
			}
			_, err := run(b.slot(test.slot, 0), b.task("use"), test.uses)
			if test.message == "" {
				require.NoError(t, err)
				return
			}
			f := asFault(t, err)
			require.Equal(t, gpumux.FaultBadInput, f.Kind, "no other try can help")
			require.Equal(t, "run", f.Op)
			require.Contains(t, f.Message, test.message)
			require.Contains(t, f.Hint, "take CUDA_VISIBLE_DEVICES out of the task's code")
		})
	}
}
