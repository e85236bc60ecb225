package workers_test

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

// A program of one's own that serves the pools of a worker's file until it is told to
// stop.
func ExampleNew() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c, err := config.Load("gpumux.yaml")
	if err != nil {
		log.Fatal(err)
	}
	w, err := workers.New(c, workers.Options{Dedicated: true, Version: "1.2.3", Log: zap.NewExample()})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Start(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(w.Describe().Pools)
	select {
	case <-ctx.Done():
	case err := <-w.Failed():
		log.Print(err)
	}
	if err := w.Stop(context.Background()); err != nil {
		log.Fatal(err)
	}
}
