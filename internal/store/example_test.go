package store_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/store"
)

// Workers store parts in any order. The merge makes one results file in the order of the
// input.
func ExampleStore_Merge() {
	ctx := context.Background()
	s, err := store.Open(ctx, "mem://", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	for _, part := range [][]gpumux.Result{
		{{Index: 2, Value: []byte(`4`)}},
		{{Index: 0, Value: []byte(`0`)}, {Index: 1, Fault: &gpumux.Fault{Kind: gpumux.FaultTimeout, Message: "no result after 2s"}}},
	} {
		if err := s.WritePart(ctx, "squares.parts", part); err != nil {
			log.Fatal(err)
		}
	}
	merged, err := s.Merge(ctx, contract.MergeInput{Parts: "squares.parts", Output: "squares.jsonl", Items: 3})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(merged.Succeeded, "succeeded,", merged.Failed, "failed")
	for r, err := range s.Results(ctx, "squares.jsonl") {
		fmt.Println(r.Index, string(r.Value), r.Fault != nil, err)
	}
	// Output:
	// 2 succeeded, 1 failed
	// 0 0 false <nil>
	// 1  true <nil>
	// 2 4 false <nil>
}

// A tail reads the results of a running map, each once and in order.
func ExampleFolder_Tail() {
	ctx := context.Background()
	s, err := store.Open(ctx, "mem://", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	folder, err := s.Folder("squares.parts")
	if err != nil {
		log.Fatal(err)
	}
	tail, to := folder.Tail(false), folder.Append()
	for _, index := range []int64{0, 2, 1} {
		if err := to.Add(gpumux.Result{Index: index, Value: fmt.Append(nil, index*index)}); err != nil {
			log.Fatal(err)
		}
		if err := to.Flush(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println("stored", index)
		for line, err := range tail.Lines(ctx, nil) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println("  read", string(line))
		}
	}
	// Output:
	// stored 0
	//   read {"index":0,"value":0}
	// stored 2
	// stored 1
	//   read {"index":1,"value":1}
	//   read {"index":2,"value":4}
}
