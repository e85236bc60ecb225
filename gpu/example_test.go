package gpu_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/gpumux/gpumux/gpu"
)

// What this host has; without a driver that is the CPU, and the reason is told.
func ExampleOpen() {
	inv, err := gpu.Open(context.Background(), gpu.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer inv.Close()
	for _, d := range inv.Devices() {
		fmt.Println(d, d.Memory>>30, "GiB")
	}
	fmt.Println(inv.Reason())
}

// A pool's `devices` becomes the devices that work can run on: a GPU in MIG mode stands
// for its instances.
func ExampleInventory_Select() {
	inv, err := gpu.Open(context.Background(), gpu.Options{Static: []gpu.Device{
		{Index: 0, Kind: gpu.KindGPU, UUID: "GPU-1d04", Name: "A100", Memory: 40 << 30},
		{Index: 1, Kind: gpu.KindGPU, UUID: "GPU-77ab", Name: "A100", MIG: true},
		{Index: 1, Kind: gpu.KindMIG, UUID: "MIG-90cc", Name: "A100 MIG 1g.5gb", Parent: "GPU-77ab", Memory: 5 << 30},
	}})
	if err != nil {
		log.Fatal(err)
	}
	devices, err := inv.Select(gpu.Selection{"all"})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range devices {
		fmt.Println(d)
	}
	// Output:
	// 0 (GPU-1d04, A100)
	// 1:0 (MIG-90cc, A100 MIG 1g.5gb)
}

// The memory of a process and of all that it has started.
func ExampleCensus() {
	census := gpu.NewCensus()
	census.Follow(os.Getpid())
	if err := census.Round(); err != nil {
		log.Fatal(err)
	}
	tree := census.Tree(os.Getpid())
	fmt.Println(tree.Sum() >= tree.Resident[os.Getpid()], tree.Sum() > 1<<20)
	// Output:
	// true true
}
