// Package devservertest gives tests a Temporal server in memory.
//
// It owns one server per test binary, started by the first test that asks, and those that
// tests start for themselves. It never uses the default ports. The shared server stops
// with the binary, the others with their test.
package devservertest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/gpumux/gpumux/cmd/gpumux/devserver"
)

const startTimeout = time.Minute

var shared = sync.OnceValues(func() (*devserver.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return devserver.Start(ctx, devserver.Options{Headless: true})
})

// Run returns the server that all tests of the binary share. Do not stop it.
func Run(t testing.TB) *devserver.Server {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Namespace registers a namespace at the shared server for this test alone, so that tests
// which use the same task queues and workflow ids can run in parallel.
func Namespace(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("%s-%d", strings.Map(namespaceRune, t.Name()), time.Now().UnixNano())
	_, err := Dial(t, Run(t), "default").WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace:                        name,
		WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	if err != nil {
		t.Fatalf("register namespace %s: %v", name, err)
	}
	return name
}

// Dial connects a client that logs nothing. It is closed with the test.
func Dial(t testing.TB, s *devserver.Server, namespace string) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: s.Address(), Namespace: namespace, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatalf("connect to %s: %v", s.Address(), err)
	}
	t.Cleanup(c.Close)
	return c
}

func namespaceRune(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
		return r
	}
	return '-'
}
