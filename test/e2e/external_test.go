package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux/test/devservertest"
)

// drawer is a driver of external storage in memory.
type drawer struct {
	mu   sync.Mutex
	kept []*commonpb.Payload
}

func (*drawer) Name() string { return "drawer" }
func (*drawer) Type() string { return "memory" }

func (d *drawer) Store(_ converter.StorageDriverStoreContext, payloads []*commonpb.Payload) (claims []converter.StorageDriverClaim, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range payloads {
		claims = append(claims, converter.StorageDriverClaim{ClaimData: map[string]string{"at": strconv.Itoa(len(d.kept))}})
		d.kept = append(d.kept, p)
	}
	return claims, nil
}

func (d *drawer) Retrieve(_ converter.StorageDriverRetrieveContext, claims []converter.StorageDriverClaim) (found []*commonpb.Payload, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, claim := range claims {
		at, err := strconv.Atoi(claim.ClaimData["at"])
		if err != nil || at >= len(d.kept) {
			return nil, fmt.Errorf("nothing lies at %q", claim.ClaimData["at"])
		}
		found = append(found, d.kept[at])
	}
	return found, nil
}

// external connects a program whose payloads lie in external storage, however small.
func (s *site) external(d *drawer) client.Client {
	s.t.Helper()
	c, err := client.Dial(client.Options{
		HostPort: devservertest.Run(s.t).Address(), Namespace: s.namespace, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ExternalStorage: converter.ExternalStorage{Drivers: []converter.StorageDriver{d}, PayloadSizeThreshold: 1},
	})
	require.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	w := worker.New(c, "service", worker.Options{})
	w.RegisterWorkflow(viaMap)
	w.RegisterWorkflow(viaSource)
	w.RegisterWorkflow(viaLease)
	require.NoError(s.t, w.Start())
	s.t.Cleanup(w.Stop)
	return c
}

// A program that gives its client to the worker, too, maps with external storage, which
// the SDK resolves.
func TestExternalStorage_InAProgram(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := &drawer{}
	c := s.external(d)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	short := []float64{0.01, 0.02, 0.03}
	run := func(f string, arg any) (got int, err error) {
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: f, TaskQueue: "service"}, f, arg)
		require.NoError(t, err)
		return got, run.Get(ctx, &got)
	}
	s.client = c
	s.worker("cpu", 2)
	for f, arg := range map[string]any{"viaMap": short, "viaSource": s.source("0.01\n0.02\n0.03\n"), "viaLease": short} {
		got, err := run(f, arg)
		require.NoError(t, err, f)
		require.Equal(t, len(short), got, f)
	}
	require.NotEmpty(t, d.kept)
}
