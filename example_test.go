package gpumux_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

func ExampleParseSize() {
	budget, err := gpumux.ParseSize("1.5G")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(int64(budget), budget)
	_, err = gpumux.ParseSize("a lot")
	fmt.Println(err)
	// Output:
	// 1610612736 1.5GiB
	// "a lot" is not a size; write it as 8GiB, 512MB or a number of bytes
}

// A size is read in any unit, and written as bytes, so that it does not change on the
// way.
func ExampleSize() {
	var slot struct {
		Memory gpumux.Size `json:"memory"`
	}
	if err := json.Unmarshal([]byte(`{"memory": "8GiB"}`), &slot); err != nil {
		log.Fatal(err)
	}
	text, err := json.Marshal(slot)
	fmt.Println(slot.Memory, string(text), err)
	// Output:
	// 8GiB {"memory":"8589934592"} <nil>
}

func ExampleDuration() {
	var limits []gpumux.Duration
	if err := json.Unmarshal([]byte(`["90s", "2h", 0.5]`), &limits); err != nil {
		log.Fatal(err)
	}
	written, err := json.Marshal(limits)
	fmt.Println(limits, string(written), err)
	// Output:
	// [1m30s 2h0m0s 500ms] [90,7200,0.5] <nil>
}

// The input of the workflow gpumux.Map, which a client in any language may start.
func ExampleMapInput() {
	in := gpumux.MapInput{
		Task:   "embed",
		Source: "texts.jsonl",
		Ladder: []string{"small", "large"},
		Mode:   gpumux.ModeFresh,
		Output: "vectors.jsonl",
	}
	text, err := json.Marshal(in)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
	fmt.Println("items:", in.Len(), "rungs:", in.Rungs())
	// Output:
	// {"task":"embed","source":"texts.jsonl","ladder":["small","large"],"mode":"fresh","output":"vectors.jsonl"}
	// items: -1 rungs: [small large]
}

// Every mistake is named at once.
func ExampleMapInput_Validate() {
	in := gpumux.MapInput{Range: &gpumux.Range{Start: 10, End: 1}}
	fmt.Println(in.Validate())
	// Output:
	// invalid map input: task: is missing; give the name of a task that the workers know; range: end 1 is before start 10
}

func ExampleRange() {
	in := gpumux.MapInput{Task: "simulate", Range: &gpumux.Range{Start: 100, End: 1_000_100}}
	fmt.Println(in.Len(), in.Validate())
	// Output:
	// 1000000 <nil>
}

// A fault says what happened to an item, where, and what to do next.
func ExampleFault() {
	var result gpumux.Result
	err := json.Unmarshal([]byte(`{"index": 7, "fault": {
		"kind": "budget", "message": "the process held too much", "slot": "gpu/1", "device": "GPU-1d04",
		"budget": 8589934592, "peak": 9663676416, "hint": "give the pool more memory"}}`), &result)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Fault)
	// Output:
	// budget in slot gpu/1 on GPU-1d04: the process held too much; budget 8GiB, peak 9GiB; give the pool more memory
}

// A fault is an error like any other.
func ExampleFault_errorsAs() {
	embed := func() error {
		return fmt.Errorf("embed the titles: %w", &gpumux.Fault{Kind: gpumux.FaultDeviceOOM, Message: "CUDA out of memory"})
	}
	err := embed()
	var fault *gpumux.Fault
	if errors.As(err, &fault) && fault.Kind.Memory() {
		fmt.Println("a pool with more memory may do:", err)
	}
	// Output:
	// a pool with more memory may do: embed the titles: device_oom: CUDA out of memory
}

func ExampleKinds() {
	for _, kind := range gpumux.Kinds() {
		fmt.Printf("%-11s  ends the process: %-5t  about memory: %t\n", kind, kind.Deadly(), kind.Memory())
	}
	// Output:
	// device_oom   ends the process: true   about memory: true
	// budget       ends the process: true   about memory: true
	// host_oom     ends the process: true   about memory: true
	// crash        ends the process: true   about memory: false
	// timeout      ends the process: true   about memory: false
	// device_lost  ends the process: true   about memory: false
	// task_error   ends the process: false  about memory: false
	// bad_input    ends the process: false  about memory: false
	// canceled     ends the process: false  about memory: false
}

// What a map with few results comes to.
func ExampleSummary() {
	var summary gpumux.Summary
	err := json.Unmarshal([]byte(`{"task": "square", "items": 3, "succeeded": 2, "failed": 1, "results": [
		{"index": 0, "value": 0}, {"index": 1, "value": 1}, {"index": 2, "fault": {"kind": "task_error", "message": "not today"}}]}`), &summary)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range summary.Results {
		if r.Fault != nil {
			fmt.Println(r.Index, "failed:", r.Fault)
			continue
		}
		fmt.Println(r.Index, string(r.Value))
	}
	// Output:
	// 0 0
	// 1 1
	// 2 failed: task_error: not today
}

// Items in any pattern stay short in JSON: first index, how many, then in turn how many
// are left out and how many follow.
func ExampleRuns() {
	var failed contract.Runs
	for _, index := range []int64{5, 6, 7, 10} {
		failed.Add(index)
	}
	text, err := json.Marshal(failed)
	fmt.Println(failed.Len(), failed.Has(8), string(text), err)
	// Output:
	// 4 false [5,3,2,1] <nil>
}

// Work is cut into chunks from its beginning on.
func ExampleWork() {
	rest := contract.Whole(10)
	for rest.Len() > 0 {
		chunk := rest.Take(4)
		fmt.Println(chunk.Runs)
	}
	// Output:
	// [{0 4}]
	// [{4 8}]
	// [{8 10}]
}

func ExamplePeaks() {
	var peaks gpumux.Peaks
	peaks.Budget = 8 << 30
	for _, held := range []int64{1 << 30, 1 << 30, 3 << 30} {
		peaks.Add(held)
	}
	fmt.Println(peaks.Items(), "items:", &peaks)
	fmt.Println("a budget that would do:", peaks.Need())
	// Output:
	// 3 items: p50 1.1GiB, p99 3GiB, max 3GiB of 8GiB; memory: 3.5GiB would do
	// a budget that would do: 3.5GiB
}
