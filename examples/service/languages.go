package main

import (
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux/workflows"
)

// Languages counts in which languages the texts are written. The task runs at the gpumux
// workers that serve the pool cpu.
func Languages(ctx workflow.Context, texts []string) (map[string]int, error) {
	results, err := workflows.Map[string, string](ctx, "text:language", texts, workflows.Options{Ladder: []string{"cpu"}})
	if err != nil {
		return nil, err
	}
	languages, err := workflows.Values(results)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, language := range languages {
		count[language]++
	}
	return count, nil
}
