package starter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

// Start a map over a file and read its results, each as soon as all before it are there.
func Example() {
	ctx := context.Background()
	c, err := client.Dial(client.Options{HostPort: "temporal:7233"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s := &starter.Starter{Client: c}
	defer s.Close()

	file, err := os.Open("texts.jsonl")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	items, err := starter.Spool(file, file.Name())
	if err != nil {
		log.Fatal(err)
	}
	defer items.Remove()
	h, err := s.Start(ctx, starter.Map{Input: gpumux.MapInput{Task: "embed"}, Spooled: items})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("map", h.ID, h.Entry)
	for result, err := range h.Results(ctx, starter.ReadOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		if result.Fault != nil {
			fmt.Println(result.Index, "failed:", result.Fault)
			continue
		}
		fmt.Println(result.Index, string(result.Value))
	}
}

// What cannot work is refused before anybody is asked.
func ExampleStarter_Start() {
	s := &starter.Starter{}
	_, err := s.Start(context.Background(), starter.Map{Input: gpumux.MapInput{Task: "embed", Ladder: []string{"GPU"}}})
	var wrong *gpumux.InputError
	if errors.As(err, &wrong) {
		for _, p := range wrong.Problems {
			fmt.Println(p.Field+":", p.Message)
		}
	}
	// Output:
	// ladder[0]: pool name "GPU": use 1 to 63 lower-case letters, digits and dashes, such as gpu or h200-16g
	// items: nothing to map over; give one of items (may be empty: []), source and range
}

// Watch shows how far a map is until it is over.
func ExampleHandle_Watch() {
	ctx := context.Background()
	c, err := client.Dial(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s := &starter.Starter{Client: c}
	defer s.Close()
	h, err := s.Start(ctx, starter.Map{Input: gpumux.MapInput{Task: "simulate", Range: &gpumux.Range{End: 100_000}}})
	if err != nil {
		log.Fatal(err)
	}
	summary, err := h.Watch(ctx, func(p gpumux.Progress) {
		fmt.Printf("%s: %d of %d, %.0f a second\n", p.Phase, p.Succeeded+p.Failed, p.Items, p.Rate)
	})
	var fault *gpumux.Fault
	switch {
	case errors.As(err, &fault):
		log.Fatal("a ", fault.Kind, " ended the map: ", fault.Message)
	case err != nil:
		log.Fatal(err)
	}
	fmt.Println(summary.Succeeded, "results in", summary.Output)
}

// Retry runs again what failed, here on a pool with more memory.
func ExampleStarter_Retry() {
	ctx := context.Background()
	c, err := client.Dial(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s := &starter.Starter{Client: c}
	defer s.Close()
	h, err := s.Retry(ctx, "embed-bed1feffd9e9", func(in *gpumux.MapInput) { in.Ladder = []string{"large"} })
	if err != nil {
		log.Fatal(err)
	}
	if h.Entry == starter.EntryFound {
		return // every item has succeeded
	}
	if _, err := h.Wait(ctx); err != nil {
		log.Fatal(err)
	}
}

// The results that a summary holds or names are read like those of a map that runs.
func ExampleStarter_Completed() {
	s := &starter.Starter{}
	summary := gpumux.Summary{Results: []gpumux.Result{
		{Index: 0, Value: []byte(`"English"`)},
		{Index: 1, Fault: &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: "no idea"}},
	}}
	for result, err := range s.Completed(summary).Results(context.Background(), starter.ReadOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Index, string(result.Value), result.Fault != nil)
	}
	// Output:
	// 0 "English" false
	// 1  true
}

// A map gets its ID from what it is, so that the same call finds the same map.
func ExampleMap_Identify() {
	m := starter.Map{Input: gpumux.MapInput{Task: "embed", Range: &gpumux.Range{End: 1000}}}
	id, _ := m.Identify()
	m.Input.Window = 8 // how fast, not what
	same, _ := m.Identify()
	fmt.Println(same == id)
	m.Input.Range.End = 2000
	other, _ := m.Identify()
	fmt.Println(other == id)
	// Output:
	// true
	// false
}

// A mistake in an input file is reported with its line before anything runs.
func ExampleSpool() {
	_, err := starter.Spool(strings.NewReader("{\"n\": 1}\n{\"n\": two}\n"), "items.jsonl")
	var wrong *gpumux.SourceError
	if errors.As(err, &wrong) {
		fmt.Printf("%s:%d: %s\n", wrong.Name, wrong.Line, wrong.Hint)
	}
	// Output:
	// items.jsonl:2: write one JSON value per line, text in double quotes, or give --lines
}
