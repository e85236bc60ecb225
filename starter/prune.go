package starter

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
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
// younger map, or a schedule, names as its results or its input. A map that the server
// does not know has ended when something was last written to its folder. Prune deletes
// nothing when it cannot read a running map or a schedule.
func (s *Starter) Prune(ctx context.Context, o PruneOptions) ([]Pruned, error) {
	st, err := s.store(ctx)
	if err != nil {
		return nil, err
	}
	return prune.Run(ctx, st, o, func() ([]string, error) { return s.used(ctx, o.Before) })
}

// used is what running maps, those that ended since, and schedules name.
func (s *Starter) used(ctx context.Context, since time.Time) (used []string, err error) {
	for r, err := range s.newestRuns(ctx, "") {
		if err != nil {
			return nil, err
		}
		if !r.Closed.IsZero() && r.Closed.Before(since) {
			continue
		}
		// Its own history has the input, which the server keeps for longer than that of the
		// map's first run.
		began, err := s.began(ctx, r.ID, r.RunID)
		if errors.As(err, new(*serviceerror.NotFound)) {
			continue // it has gone since it was listed, so it has ended
		}
		if err != nil {
			return nil, err
		}
		names, err := s.namedBy(began.GetInput())
		if err != nil && r.Closed.IsZero() {
			return nil, fmt.Errorf("read the input of map %s, which may need all that there is: %w", r.ID, err)
		}
		used = append(append(used, names...), began.GetFirstExecutionRunId(), r.Memo.Output)
	}
	schedules, err := s.Schedules().List(ctx)
	for _, one := range schedules {
		_, input, err := s.Schedules().describe(ctx, one.Name)
		if errors.As(err, new(*ScheduleError)) {
			continue // it has gone meanwhile
		}
		if err != nil {
			return nil, err
		}
		names, err := s.namedBy(input)
		if err != nil {
			return nil, fmt.Errorf("read the input of schedule %s, which may need all that there is: %w", one.Name, err)
		}
		used = append(used, names...)
	}
	return used, err
}

// namedBy is what the input of a map names, or that of a run which continues one.
func (s *Starter) namedBy(input *commonpb.Payloads) ([]string, error) {
	var in gpumux.MapInput
	var continued contract.Handoff
	err := s.converter().FromPayloads(input, &continued)
	if err == nil && continued.Carry != nil {
		in = gpumux.MapInput(continued.Input)
	} else {
		err = s.converter().FromPayloads(input, &in)
	}
	if err == nil {
		err = in.Validate()
	}
	return []string{in.Output, in.Source}, fleet.WithKeysHint(err)
}
