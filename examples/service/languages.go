package main

import (
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// Languages counts in which languages the texts are written. The task runs at the gpumux
// workers that serve the pool cpu.
func Languages(ctx workflow.Context, texts []string) (map[string]int, error) {
	mapped, err := workflows.Map[string, string](ctx, gpumux.MapInput{Task: "text:language", Ladder: []string{"cpu"}}, texts)
	if err != nil {
		return nil, err
	}
	languages, err := mapped.Values()
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, language := range languages {
		count[language]++
	}
	return count, nil
}
