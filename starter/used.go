package starter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/store"
)

// findUsed notes what running maps, those that ended since, and schedules name.
func (s *Starter) findUsed(ctx context.Context, since time.Time, u *used) error {
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
		adding.Go(func() error { return addRun(ctx, maps, u, r) })
	}
	return errors.Join(adding.Wait(), s.addSchedules(ctx, u))
}

// addSchedules notes what Temporal's schedules of maps name.
func (s *Starter) addSchedules(ctx context.Context, u *used) error {
	schedules := s.Client.ScheduleClient()
	entries, err := schedules.List(ctx, client.ScheduleListOptions{PageSize: 100})
	for err == nil && entries.HasNext() {
		var entry *client.ScheduleListEntry
		if entry, err = entries.Next(); err != nil || entry.WorkflowType.Name != gpumux.MapWorkflow {
			continue
		}
		var found *client.ScheduleDescription
		if found, err = schedules.GetHandle(ctx, entry.ID).Describe(ctx); err == nil {
			err = addInput(s.registry().data, u, "schedule "+entry.ID, scheduledInput(found), true)
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
func addRun(ctx context.Context, maps registry, u *used, r *run) error {
	began, err := maps.began(ctx, r.ID, r.RunID)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil // it has gone since it was listed, so it has ended
	}
	if err != nil {
		return err
	}
	u.addRun(began.GetFirstExecutionRunId())
	u.add(r.Memo.Output)
	return addInput(maps.data, u, "map "+r.ID, began.GetInput(), r.Closed.IsZero())
}

// addInput notes the objects that the input of a map or a schedule names. One that cannot
// be read, as of a later release or under another key, may name any.
func addInput(data converter.DataConverter, u *used, owner string, input *commonpb.Payloads, runs bool) error {
	var in gpumux.MapInput
	var continued struct {
		Input *gpumux.MapInput `json:"input"`
	}
	var text json.RawMessage
	err := data.FromPayloads(input, &text)
	if err == nil && json.Unmarshal(text, &continued) == nil && continued.Input != nil {
		in = *continued.Input
	} else if err == nil {
		err = json.Unmarshal(text, &in)
	}
	if err == nil {
		err = in.Validate()
	}
	if err != nil {
		wrong := fmt.Errorf("read the input of %s: %w", owner, fleet.WithKeysHint(err))
		if fleet.Sealed(err) && runs || text == nil && !contract.Unfit(err) { // a codec that failed may yet read it
			return wrong
		}
		u.unread(wrong)
	}
	u.add(in.Output, in.Source, in.ArgFile)
	return nil
}

// used are the objects that maps name. Its methods may be called from several goroutines.
type used struct {
	st   *store.Store
	warn func(problem string)
	mu   sync.Mutex
	// keys are of results and inputs, runs the first runs of maps. inputs keeps all inputs.
	keys   []string
	runs   map[string]bool
	inputs bool
}

// add notes names of objects; what lies outside the store does not matter.
func (u *used) add(objects ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range objects {
		name, _, _ = names.CutResults(name)
		if key, err := u.st.Objects.Key(name); err == nil {
			u.keys = append(u.keys, key)
		}
	}
}

// addRun notes the first run of a map.
func (u *used) addRun(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runs[id] = true
}

// unread notes that something could not be read, so that it may name any input.
func (u *used) unread(why error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inputs = true
	if u.warn != nil {
		u.warn(fmt.Sprintf("%v; every input is kept", why))
	}
}

// has reports whether what is deleted together holds something that is named, or may be.
func (u *used) has(group string) bool {
	return u.runs[path.Base(group)] || u.inputs && sourceFile.MatchString(group) ||
		slices.ContainsFunc(u.keys, func(key string) bool { return key == group || strings.HasPrefix(key, group+"/") })
}
