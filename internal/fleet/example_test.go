package fleet_test

import (
	"fmt"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
)

func ExamplePoolsOf() {
	workers := []fleet.Worker{
		{Identity: "node1/7", Offer: &contract.WorkerInfo{Tasks: []string{"embed"}, Pools: []contract.PoolInfo{{Name: "gpu"}, {Name: "cpu"}}}},
		{Identity: "node2/7", Offer: &contract.WorkerInfo{Tasks: []string{"embed", "train"}, Pools: []contract.PoolInfo{{Name: "large"}}}},
		{Identity: "node3/7", Error: "does not answer"},
	}
	fmt.Println(fleet.PoolsOf(workers, "embed"), fleet.PoolsOf(workers, "train"))
	// Output:
	// [cpu gpu large] [large]
}
