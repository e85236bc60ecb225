package config_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

// Every mistake in a worker's file is told at once, with its line.
func ExampleLoad() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "gpumux.yaml")
	err = os.WriteFile(path, []byte(`
temporal: {adress: "10.0.0.1:7233"}
pools:
  - name: gpu
    memory: a lot
`), 0o600)
	if err != nil {
		log.Fatal(err)
	}
	_, err = config.Load(path)
	fmt.Println(strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""))
	// Output:
	// 2 mistakes in gpumux.yaml
	//   gpumux.yaml:2: temporal.adress: is no field; there are address, namespace, deployment, build
	//   gpumux.yaml:5: pools[0].memory: "a lot" is not a size; write it as 8GiB, 512MB or a number of bytes
}

// What a file says must also make sense on the host's devices.
func ExampleConfig_Validate() {
	inventory, err := gpu.Open(context.Background(), gpu.Options{Static: []gpu.Device{
		{Index: 0, Kind: gpu.KindGPU, UUID: "GPU-1d04", Name: "A100", Memory: 40 << 30},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer inventory.Close()
	c := config.Config{
		Store: "file:///var/lib/gpumux",
		Pools: []config.Pool{{Name: "gpu", Slots: 4, Memory: 16 << 30}},
		Tasks: map[string]config.Task{"embed": {}},
	}
	fmt.Println(c.Validate(inventory))
	// Output:
	// 2 mistakes in the worker's configuration
	//   pools[0].memory: 4 × 16GiB in pool gpu is more than the 40GiB of 0 (GPU-1d04, A100); lower memory or slots
	//   tasks.embed: says not what to run; give one of python, python_dir, r, command and program
}

// A plan says which slots sit on which devices.
func ExampleConfig_Plan() {
	inventory, err := gpu.Open(context.Background(), gpu.Options{Static: []gpu.Device{
		{Index: 0, Kind: gpu.KindGPU, UUID: "GPU-1d04", Name: "A100", Memory: 40 << 30},
		{Index: 1, Kind: gpu.KindGPU, UUID: "GPU-77ab", Name: "A100", Memory: 40 << 30},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer inventory.Close()
	c := config.Config{
		Pools: []config.Pool{{Name: "gpu", Slots: 4, Memory: 8 << 30}}, Store: "file:///var/lib/gpumux",
		Tasks: map[string]config.Task{"hello": {Command: []string{"/bin/echo", "hello"}, Output: "text"}},
	}
	placements, tasks, err := c.Plan(inventory)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range placements {
		for _, g := range p.Groups {
			fmt.Println(p.Name, g.Name, p.MinSlots(), "slots of", p.Memory)
		}
	}
	fmt.Println(tasks.Names())
	_, err = tasks.Find("hallo")
	fmt.Println(err)
	// Output:
	// gpu GPU-1d04 4 slots of 8GiB
	// gpu GPU-77ab 4 slots of 8GiB
	// [hello]
	// bad_input: no task "hallo"; this worker has hello; name the task in the worker's file, or use one of these
}

// Metrics are served to this machine alone unless a host is named.
func ExampleMetricsAddress() {
	for _, text := range []string{"9090", ":9090", "0.0.0.0:9090"} {
		fmt.Println(config.MetricsAddress(text))
	}
	// Output:
	// "9090" is not host:port; write 127.0.0.1:9464
	// 127.0.0.1:9090 <nil>
	// 0.0.0.0:9090 <nil>
}
