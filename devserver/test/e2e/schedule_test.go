package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/store"
)

func TestSchedule_StartsMapsOfItsOwn(t *testing.T) {
	s := newStage(t)
	s.work()
	for says, at := range map[string]starter.ScheduleSpec{
		"has 2 fields": {Cron: []string{"every day"}}, "Minute is not in range": {Cron: []string{"every day * * *"}},
		"has 6 fields": {Cron: []string{"@daily", "0 0 2 * * *"}}, "the time 0 2 30 2 * never comes": {Cron: []string{"0 2 30 2 *"}},
		"Nowhere": {Cron: []string{"@daily"}, Zone: "Nowhere/Land"},
	} {
		err := s.Schedules().Create(t.Context(), "wrong", at, s.over("double", 3))
		require.ErrorAs(t, err, new(*starter.ScheduleError))
		require.ErrorContains(t, err, says)
	}
	for says, in := range map[string]gpumux.MapInput{
		`task: no worker has "step:duble"; they have`: {Task: "step:duble"}, `reduce: no worker has "som"`: {Task: "step:double", Reduce: "som"},
	} {
		m := s.over("double", 3)
		m.Input.Task, m.Input.Reduce = in.Task, in.Reduce
		err := s.Schedules().Create(t.Context(), "wrong", starter.ScheduleSpec{Cron: []string{"@daily"}}, m)
		require.ErrorAs(t, err, new(*gpumux.InputError))
		require.ErrorContains(t, err, says)
	}
	require.Empty(t, s.schedules(), "none is left of a mistake")
	summed := s.over("double", 3)
	summed.Input.Task, summed.Input.Reduce = "step.py:double", "sum"
	require.NoError(t, s.Schedules().Create(t.Context(), "leap", starter.ScheduleSpec{Cron: []string{"0 2 29 2 *"}}, summed))
	require.NoError(t, s.Schedules().Delete(t.Context(), "leap"))
	// Items are checked as those of any map.
	for lines, problem := range map[string]string{"": "", "{\"id\":1}\n": "", "{\"n\":1}\n": "no field"} {
		spooled, err := store.Spool(strings.NewReader(lines), store.SpoolOptions{Dir: t.TempDir()})
		require.NoError(t, err)
		m := starter.Map{Input: gpumux.MapInput{Task: "step:double", Ladder: []string{"cpu"}, Key: "id"}, Spooled: spooled}
		if err := s.Schedules().Create(t.Context(), "keyed", starter.ScheduleSpec{Cron: []string{"@daily"}}, m); problem != "" {
			require.ErrorContains(t, err, problem)
			continue
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, s.Schedules().Delete(t.Context(), "keyed"))
	}
	// The first time is at most two seconds away.
	require.NoError(t, s.Schedules().Create(t.Context(), "often", starter.ScheduleSpec{Cron: []string{"@every 2s"}, Zone: "UTC"}, s.over("double", 3)))
	require.ErrorContains(t, s.Schedules().Create(t.Context(), "often", starter.ScheduleSpec{Cron: []string{"@daily"}}, s.over("double", 3)), "there is a schedule often already; replace it")
	var one starter.ScheduleInfo
	s.until("two maps were started", func() bool {
		one = s.schedules()["often"]
		return len(one.Maps) >= 2
	})
	handle := s.Client.ScheduleClient().GetHandle(t.Context(), "often")
	require.NoError(t, handle.Pause(t.Context(), client.SchedulePauseOptions{}))
	require.Equal(t, "step:double", one.Task)
	require.EqualValues(t, 3, one.Items)
	require.Equal(t, starter.ScheduleSpec{Cron: []string{"@every 2s"}, Zone: "UTC"}, one.Times)
	require.NotEqual(t, one.Maps[0], one.Maps[1])
	for _, id := range one.Maps[:2] {
		require.True(t, strings.HasPrefix(id, "often-"), id)
		h, err := s.Open(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "step:double", h.Task)
		require.Len(t, s.results(h), 3)
	}
	s.until("it is paused", func() bool { one = s.schedules()["often"]; return one.Paused && len(one.Next) == 0 })

	// Another map at other times keeps what it has started, and that it is paused.
	started := one.Maps
	leap := starter.ScheduleSpec{Cron: []string{"0 2 29 2 *"}, Zone: "Europe/Berlin"}
	require.NoError(t, s.Schedules().Replace(t.Context(), "often", leap, s.over("odd", 4)))
	one = s.schedules()["often"]
	require.Equal(t, starter.ScheduleInfo{Name: "often", Task: "step:odd", Items: 4, Times: leap, Paused: true, Next: []time.Time{}, Maps: started, Input: one.Input}, one)
	require.NoError(t, handle.Unpause(t.Context(), client.ScheduleUnpauseOptions{}))
	s.until("it comes in a leap year", func() bool {
		next := s.schedules()["often"].Next
		return len(next) > 0 && next[0].UTC().Format("01-02 15:04") == "02-29 01:00"
	})
	// A mistake changes nothing.
	for says, cron := range map[string]string{"never comes": "0 2 30 2 *", "Minute is not in range": "every day * * *"} {
		require.ErrorContains(t, s.Schedules().Replace(t.Context(), "often", starter.ScheduleSpec{Cron: []string{cron}}, s.over("double", 3)), says)
		one = s.schedules()["often"]
		require.Equal(t, "step:odd", one.Task)
		require.Equal(t, leap, one.Times)
		require.Equal(t, "02-29 01:00", one.Next[0].UTC().Format("01-02 15:04"))
	}
	require.NoError(t, s.Schedules().Replace(t.Context(), "often", starter.ScheduleSpec{Cron: []string{"@every 2s"}}, s.over("double", 5)))
	s.until("it starts the other map", func() bool { one = s.schedules()["often"]; return len(one.Maps) > len(started) })
	h, err := s.Open(t.Context(), one.Maps[len(one.Maps)-1])
	require.NoError(t, err)
	require.Len(t, s.results(h), 5)
	require.NoError(t, s.Schedules().Delete(t.Context(), "often"))
	require.ErrorContains(t, s.Schedules().Trigger(t.Context(), "often"), "there is no schedule")
	require.ErrorContains(t, s.Schedules().Delete(t.Context(), "often"), "there is no schedule")
}

// A schedule asks the workers for its task before it is there, and starts its map when
// it is told to.
func TestSchedule_Trigger(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hand()
	s.serve(h.config(1))
	here := newShell(t)
	here.at(s)
	inside := filepath.Join(s.dir, "store", "in", "x.parquet")
	table(t, inside, 3)
	create := func(task string) []string {
		return []string{"schedule", "create", "yearly", task, "--cron", "0 0 1 1 *", "--in", "file://" + inside, "--columns", "size", "--pool", "cpu"}
	}
	require.Contains(t, here.run(2, create("ekko")...).stderr.String(), `no worker has "ekko"`)
	require.Contains(t, here.run(2, "schedule", "trigger", "yearly").stderr.String(), "there is no schedule")
	here.run(0, create("echo")...)
	require.Contains(t, here.run(0, "schedule", "trigger", "yearly").stderr.String(), "schedule yearly: its map starts now")
	var all []starter.ScheduleInfo
	rig.Wait(t, func() bool {
		require.NoError(t, json.Unmarshal([]byte(here.run(0, "schedule", "list", "--json").stdout.String()), &all))
		return len(all[0].Maps) == 1
	}, time.Minute, 50*time.Millisecond, "it has started a map")
	here.run(0, "wait", all[0].Maps[0])
	require.Equal(t, "{\"size\":0}\n{\"size\":2}\n{\"size\":4}\n", here.run(0, "results", all[0].Maps[0], "--values").stdout.String())

	require.Contains(t, here.run(2, create("echo")...).stderr.String(), "--replace")
	here.run(0, "schedule", "create", "yearly", "echo", "--cron", "@monthly", "--range", "0:2", "--pool", "cpu", "--replace")
	before := all[0].Maps
	require.NoError(t, json.Unmarshal([]byte(here.run(0, "schedule", "list", "--json").stdout.String()), &all))
	require.Equal(t, []string{"@monthly"}, all[0].Times.Cron)
	require.Equal(t, before, all[0].Maps)
	here.run(0, "schedule", "create", "new", "echo", "--cron", "@daily", "--range", "0:2", "--pool", "cpu", "--replace")
}

// schedules are those of the site by name, as the server lists them a moment later.
func (s *stage) schedules() map[string]starter.ScheduleInfo {
	all, err := s.Schedules().List(s.t.Context())
	require.NoError(s.t, err)
	named := map[string]starter.ScheduleInfo{}
	for _, one := range all {
		named[one.Name] = one
	}
	return named
}
