package starter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/payload"
	"github.com/gpumux/gpumux/internal/prune"
)

type (
	// PruneOptions say what Prune deletes.
	PruneOptions = prune.Options
	// Pruned is something that Prune deleted.
	Pruned = prune.Group
)

// Prune deletes from the workers' store what maps have left there that ended before a
// time: folders below maps/ and inputs below sources/. It keeps what a running or a
// younger map, or a schedule, names as its results or its input, also where it can read
// only the text of them. A map that the server does not know has ended when something was
// last written to its folder. It deletes nothing when it lacks the key to a running map
// or a schedule.
func (s *Starter) Prune(ctx context.Context, o PruneOptions) ([]Pruned, error) {
	st, err := s.openStore(ctx)
	if err != nil {
		return nil, err
	}
	return prune.Run(ctx, st, o, func(used *prune.Used) error { return s.findUsed(ctx, o.Before, used) })
}

// findUsed notes what running maps, those that ended since, and schedules name.
func (s *Starter) findUsed(ctx context.Context, since time.Time, used *prune.Used) error {
	maps := s.registry()
	var live []*run
	for r, err := range maps.newestRuns(ctx, "") {
		if err != nil {
			return err
		}
		if r.Closed.IsZero() || !r.Closed.Before(since) {
			live = append(live, r)
		}
	}
	var adding errgroup.Group
	adding.SetLimit(askAtOnce)
	for _, r := range live {
		adding.Go(func() error { return addRun(ctx, maps, used, r) })
	}
	return errors.Join(adding.Wait(), s.addSchedules(ctx, used))
}

// addSchedules notes what Temporal's schedules of maps name.
func (s *Starter) addSchedules(ctx context.Context, used *prune.Used) error {
	schedules := s.Client.ScheduleClient()
	entries, err := schedules.List(ctx, client.ScheduleListOptions{PageSize: 100})
	for err == nil && entries.HasNext() {
		var entry *client.ScheduleListEntry
		if entry, err = entries.Next(); err != nil || entry.WorkflowType.Name != gpumux.MapWorkflow {
			continue
		}
		var found *client.ScheduleDescription
		if found, err = schedules.GetHandle(ctx, entry.ID).Describe(ctx); err == nil {
			err = addInput(s.registry().data, used, "schedule "+entry.ID, scheduledInput(found), true)
		} else if errors.As(err, new(*serviceerror.NotFound)) { // deleted meanwhile
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("read the schedules: %w", err)
	}
	return nil
}

// scheduledInput is what a schedule starts its workflow with.
func scheduledInput(schedule *client.ScheduleDescription) *commonpb.Payloads {
	input := &commonpb.Payloads{}
	if action, ok := schedule.Schedule.Action.(*client.ScheduleWorkflowAction); ok {
		for _, arg := range action.Args {
			if payload, ok := arg.(*commonpb.Payload); ok {
				input.Payloads = append(input.Payloads, payload)
			}
		}
	}
	return input
}

// addRun notes what a run names. It reads the input from the run's own history, which the
// server keeps longer than that of the map's first run.
func addRun(ctx context.Context, maps registry, used *prune.Used, r *run) error {
	began, err := maps.began(ctx, r.ID, r.RunID)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil // it has gone since it was listed, so it has ended
	}
	if err != nil {
		return err
	}
	used.AddRun(began.GetFirstExecutionRunId())
	used.Add(r.Memo.Output)
	return addInput(maps.data, used, "map "+r.ID, began.GetInput(), r.Closed.IsZero())
}

// addInput notes the objects that the input of a map or a schedule names. An unknown
// input may be of a later release. One encrypted with another key may name any object.
func addInput(data converter.DataConverter, used *prune.Used, of string, input *commonpb.Payloads, runs bool) error {
	reading := func(err error) error { return fmt.Errorf("read the input of %s: %w", of, fleet.WithKeysHint(err)) }
	var text json.RawMessage // empty where it cannot be read at all
	err := data.FromPayloads(input, &text)
	if err != nil && (fleet.Sealed(err) && runs || !payload.Unfit(err)) { // a codec that failed may yet read it
		return reading(err)
	}
	var in gpumux.MapInput
	var continued struct {
		Input *gpumux.MapInput `json:"input"`
	}
	if json.Unmarshal(text, &continued) == nil && continued.Input != nil {
		in = *continued.Input
	} else if len(text) > 0 {
		err = json.Unmarshal(text, &in)
	}
	if err != nil {
		err = reading(err)
	}
	used.Add(in.Output, in.Source, in.ArgFile)
	if err == nil && in.Validate() == nil {
		return nil
	}
	used.Unread(err, string(text))
	return nil
}
