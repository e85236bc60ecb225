package fleet_test

import (
	"fmt"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
)

func ExamplePoolsOf() {
	workers := []fleet.Worker{
		{Identity: "node1/7", Offer: &gpumux.Describe{Tasks: []string{"embed"}, Pools: []gpumux.PoolInfo{{Name: "gpu"}, {Name: "cpu"}}}},
		{Identity: "node2/7", Offer: &gpumux.Describe{Tasks: []string{"embed", "train"}, Pools: []gpumux.PoolInfo{{Name: "large"}}}},
		{Identity: "node3/7", Error: "does not answer"},
	}
	fmt.Println(fleet.PoolsOf(workers, "embed"), fleet.PoolsOf(workers, "train"))
	// Output:
	// [cpu gpu large] [large]
}
