package gpu_test

import (
	"fmt"
	"log"

	"github.com/gpumux/gpumux/gpu"
)

// A pool's `devices` becomes the devices that work can run on: a GPU in MIG mode stands for
// its instances.
func ExampleInventory_Select() {
	inv, err := gpu.Open(gpu.Options{Static: []gpu.Device{
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
