package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
)

// ScheduleSpec says when a schedule starts its map.
type ScheduleSpec struct {
	// Cron are expressions of cron with five fields, such as "0 2 * * *", or @every 6h.
	Cron []string `json:"cron"`
	// Zone is the time zone that they are in, such as Europe/Berlin. Default UTC.
	Zone string `json:"zone"`
}

// ScheduleInfo is a schedule of this package.
type ScheduleInfo struct {
	Name string `json:"name"`
	Task string `json:"task"`
	// Items is -1 when only the workers can tell; Input says where they come from.
	Items  int64        `json:"items"`
	Input  string       `json:"input,omitempty"`
	Times  ScheduleSpec `json:"times"`
	Paused bool         `json:"paused"`
	// Next are the times of the next starts; none when it is paused.
	Next []time.Time `json:"next"`
	// Maps are the IDs of the maps that it started last, the newest last.
	Maps []string `json:"maps"`
}

// ScheduleError says what is wrong with a name or the times of a schedule.
type ScheduleError struct{ Problem string }

// Error says what to give instead.
func (e *ScheduleError) Error() string { return e.Problem }

// timesKey is where the memo of a schedule's maps has its ScheduleSpec. The memo of the
// schedule itself cannot be changed on every server.
const timesKey = "gpumux.times"

// Schedules are the schedules of a namespace that start maps.
type Schedules struct{ starter *Starter }

// Schedules has the schedules of the Starter's namespace.
func (s *Starter) Schedules() Schedules { return Schedules{s} }

// Create lets the server start a map at these times until the schedule is deleted. Large
// items go into the workers' store now. While a map runs, the next one is left out.
func (all Schedules) Create(ctx context.Context, name string, at ScheduleSpec, m Map) error {
	return all.put(ctx, name, at, m, false)
}

// Replace is Create where no schedule has the name. Otherwise it changes the times and
// the map of that schedule, which keeps its list of maps and stays paused if it is.
func (all Schedules) Replace(ctx context.Context, name string, at ScheduleSpec, m Map) error {
	return all.put(ctx, name, at, m, true)
}

func (all Schedules) put(ctx context.Context, name string, at ScheduleSpec, m Map, replace bool) error {
	if err := CheckID(name); err != nil {
		return &ScheduleError{fmt.Sprintf("name of a schedule %.80q: use ASCII letters, digits, dots, dashes and underscores", name)}
	}
	for _, cron := range at.Cron {
		if n := len(strings.Fields(cron)); n != 5 && !strings.HasPrefix(cron, "@") {
			return &ScheduleError{fmt.Sprintf("cron expression %.80q has %d fields; give five: minute, hour, day of the month, month, day of the week, or "+
				"@daily or '@every 6h'; there are no seconds and no years", cron, n)}
		}
	}
	if err := m.validate(); err != nil {
		return err
	}
	if err := all.starter.checkKeys(ctx); err != nil {
		return err
	}
	if err := all.starter.Fleet().Know(ctx, m.Input); err != nil {
		return err
	}
	_, fingerprint := m.Identify()
	storeURL, err := all.starter.place(ctx, &m)
	if err = cmp.Or(err, m.Input.Validate()); err != nil {
		return err
	}
	note := memo{Fingerprint: fingerprint, Task: m.Input.Task, Items: m.length(), Input: m.Label, Store: storeURL}
	action := &client.ScheduleWorkflowAction{
		ID: name, Workflow: gpumux.MapWorkflow, Args: []any{m.Input}, TaskQueue: gpumux.Queue, Memo: map[string]any{memoKey: note, timesKey: at},
		StaticSummary: summaryLine(note), StaticDetails: detailLines(m.Input, note),
		Priority:              temporal.Priority{PriorityKey: m.Input.Priority, FairnessKey: m.Input.FairnessKey, FairnessWeight: float32(m.Input.FairnessWeight)},
		TypedSearchAttributes: all.starter.registry().searchAttributes(ctx, m.Input),
	}
	spec, undo := client.ScheduleSpec{CronExpressions: at.Cron, TimeZoneName: at.Zone}, all.Delete
	_, err = all.starter.Client.ScheduleClient().Create(ctx, client.ScheduleOptions{ID: name, Spec: spec, Action: action})
	if replace && errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		var before *client.ScheduleDescription
		if before, _, err = all.describe(ctx, name); err != nil {
			return err
		}
		undo = func(ctx context.Context, name string) error {
			return all.update(ctx, name, before.Schedule.Spec, before.Schedule.Action)
		}
		err = all.update(ctx, name, &spec, action)
	}
	var wrong *serviceerror.InvalidArgument
	switch {
	case errors.Is(err, temporal.ErrScheduleAlreadyRunning):
		return &ScheduleError{fmt.Sprintf("there is a schedule %s already; replace it, or give another name", name)}
	case errors.As(err, &wrong):
		return &ScheduleError{fmt.Sprintf("schedule %s: %v", name, wrong)}
	case err != nil:
		return fmt.Errorf("create schedule %s: %w", name, err)
	}
	d, _, err := all.describe(ctx, name)
	if err == nil && !d.Schedule.State.Paused && len(d.Info.NextActionTimes) == 0 {
		return cmp.Or(undo(ctx, name), error(&ScheduleError{fmt.Sprintf("schedule %s: the time %s never comes", name, strings.Join(at.Cron, " or "))}))
	}
	return err
}

// update keeps the rest of a schedule, which may have been changed in the Web UI.
func (all Schedules) update(ctx context.Context, name string, spec *client.ScheduleSpec, action client.ScheduleAction) error {
	return all.starter.Client.ScheduleClient().GetHandle(ctx, name).Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(now client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			changed := now.Description.Schedule
			changed.Spec, changed.Action = spec, action
			return &client.ScheduleUpdate{Schedule: &changed}, nil
		},
	})
}

// List returns all of them.
func (all Schedules) List(ctx context.Context) ([]ScheduleInfo, error) {
	list := []ScheduleInfo{}
	entries, err := all.starter.Client.ScheduleClient().List(ctx, client.ScheduleListOptions{PageSize: 100})
	for err == nil && entries.HasNext() {
		var e *client.ScheduleListEntry
		if e, err = entries.Next(); err == nil && e.WorkflowType.Name == gpumux.MapWorkflow {
			var d *client.ScheduleDescription
			if d, _, err = all.describe(ctx, e.ID); err == nil {
				list = append(list, all.scheduled(e.ID, d))
			} else if errors.As(err, new(*ScheduleError)) { // deleted meanwhile
				err = nil
			}
		}
	}
	if errors.As(err, new(*serviceerror.Unimplemented)) { // an older server has none
		return list, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	return list, nil
}

func (all Schedules) describe(ctx context.Context, name string) (*client.ScheduleDescription, *commonpb.Payloads, error) {
	d, err := all.starter.Client.ScheduleClient().GetHandle(ctx, name).Describe(ctx)
	if err != nil {
		return nil, nil, aboutSchedule("look up", name, err)
	}
	action, ok := d.Schedule.Action.(*client.ScheduleWorkflowAction)
	if !ok || action.Workflow != gpumux.MapWorkflow || len(action.Args) != 1 {
		return nil, nil, &ScheduleError{fmt.Sprintf("schedule %s starts something else than maps", name)}
	}
	payload, _ := action.Args[0].(*commonpb.Payload)
	return d, &commonpb.Payloads{Payloads: []*commonpb.Payload{payload}}, nil
}

func (all Schedules) scheduled(name string, d *client.ScheduleDescription) ScheduleInfo {
	note, at := memo{Items: -1}, ScheduleSpec{}
	for key, to := range map[string]any{memoKey: &note, timesKey: &at} {
		if payload, ok := d.Schedule.Action.(*client.ScheduleWorkflowAction).Memo[key].(*commonpb.Payload); ok {
			_ = all.starter.registry().data.FromPayload(payload, to) // what another key sealed is not shown
		}
	}
	one := ScheduleInfo{Name: name, Task: note.Task, Items: note.Items, Input: note.Input, Times: at, Paused: d.Schedule.State.Paused,
		Next: []time.Time{}, Maps: []string{}}
	if !one.Paused {
		one.Next = append(one.Next, d.Info.NextActionTimes...)
	}
	for _, action := range d.Info.RecentActions {
		if started := action.StartWorkflowResult; started != nil {
			one.Maps = append(one.Maps, started.WorkflowID)
		}
	}
	return one
}

// Trigger starts the map of a schedule now, unless one still runs.
func (all Schedules) Trigger(ctx context.Context, name string) error {
	return aboutSchedule("trigger", name, all.starter.Client.ScheduleClient().GetHandle(ctx, name).Trigger(ctx, client.ScheduleTriggerOptions{}))
}

// Delete deletes a schedule. Maps that it started stay.
func (all Schedules) Delete(ctx context.Context, name string) error {
	return aboutSchedule("delete", name, all.starter.Client.ScheduleClient().GetHandle(ctx, name).Delete(ctx))
}

func aboutSchedule(verb, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*serviceerror.NotFound)), strings.TrimSpace(name) == "":
		return &ScheduleError{fmt.Sprintf("there is no schedule %q; `gpumux schedule list` lists them", name)}
	}
	return fmt.Errorf("%s schedule %s: %w", verb, name, err)
}
