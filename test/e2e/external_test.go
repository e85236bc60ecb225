package e2e

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
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

// A program that gives its client to the worker, too, maps with external storage, which
// the SDK resolves.
func TestExternalStorage_InAProgram(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := &drawer{}
	c := dial(t, client.Options{Namespace: s.namespace, // payloads lie in external storage, however small
		ExternalStorage: converter.ExternalStorage{Drivers: []converter.StorageDriver{d}, PayloadSizeThreshold: 1}})
	service(t, c, map[string]any{"viaMap": viaMap, "viaSource": viaSource})
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
	for f, arg := range map[string]any{"viaMap": short, "viaSource": s.source("0.01\n0.02\n0.03\n")} {
		got, err := run(f, arg)
		require.NoError(t, err, f)
		require.Equal(t, len(short), got, f)
	}
	require.NotEmpty(t, d.kept)
}
