package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/starter"
)

// A map on this machine, with a server of its own.
func Example() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "square.py")
	if err := os.WriteFile(file, []byte("def square(item): return item * item\n"), 0o644); err != nil {
		log.Fatal(err)
	}
	if err := squares(context.Background(), file+":square", filepath.Join(folder, "state")); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 3 items, 3 succeeded
	// 0: 49
	// 1: 64
	// 2: 81
}

func squares(ctx context.Context, name, data string) error {
	task, err := local.FindTask(name, local.TaskOptions{})
	if err != nil {
		return err
	}
	o := local.Options{Server: serve, Task: task, ServerOptions: local.ServerOptions{Data: data, Headless: true}}
	s, h, err := local.Map(ctx, o, &starter.Map{Input: gpumux.MapInput{Range: &gpumux.Range{Start: 7, End: 10}}})
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	summary, err := h.Wait(s.Context())
	if err != nil {
		return err
	}
	fmt.Printf("%d items, %d succeeded\n", summary.Items, summary.Succeeded)
	for result, err := range h.Results(s.Context(), starter.ReadOptions{}) {
		if err != nil {
			return err
		}
		fmt.Printf("%d: %s\n", result.Index, result.Value)
	}
	s.Ended(true, nil)
	return nil
}
