package devserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"go.temporal.io/sdk/client"
	tlog "go.temporal.io/sdk/log"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/cmd/gpumux/devserver"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

// A server, a worker and a map, all in this process.
func ExampleStart() {
	ctx := context.Background()
	server, err := devserver.Start(ctx, devserver.Options{Headless: true})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Stop()
	c, err := client.Dial(client.Options{HostPort: server.Address(), Logger: tlog.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	worker, err := workers.New(config.Config{
		Pools: []config.Pool{{Name: "cpu", Devices: []string{"cpu"}}}, Store: "file://" + filepath.Join(dir, "store"),
		Tasks: map[string]config.Task{"shout": {Command: []string{"tr", "a-z", "A-Z"}}},
	}, workers.Options{Client: c, Runtime: filepath.Join(dir, "runtime")})
	if err != nil {
		log.Fatal(err)
	}
	if err := worker.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer worker.Stop(ctx)

	s := &starter.Starter{Client: c}
	defer s.Close()
	h, err := s.Start(ctx, starter.Map{Input: gpumux.MapInput{
		Task: "shout", Ladder: []string{"cpu"}, Items: []json.RawMessage{[]byte(`"hello"`), []byte(`"world"`)},
	}})
	if err != nil {
		log.Fatal(err)
	}
	for result, err := range h.Results(ctx, starter.ReadOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Index, string(result.Value))
	}
	// Output:
	// 0 "HELLO"
	// 1 "WORLD"
}
