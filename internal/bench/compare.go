package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
)

// Comparison is trivial items through gpumux and through other tools, in the same run.
type Comparison struct {
	Items int `json:"items"`
	Slots int `json:"slots"`
	// Activities is how many items were one activity each.
	Activities int `json:"activities"`
	// Rounds are items per second by tool: gpumux; poolOne and poolDefault, which are
	// multiprocessing.Pool.map with chunks of 1 and of its own choice; activity, plain
	// Temporal.
	Rounds []map[string]float64 `json:"rounds"`
}

const (
	// compareRounds is how often the tools take turns; once when quick.
	compareRounds = 3
	// activityWindow is how many activities a workflow of plain Temporal keeps in flight.
	activityWindow = 200
	// activityTime bounds that workflow, which an interrupted run leaves behind.
	activityTime = 10 * time.Minute
)

func (b *bench) compare(ctx context.Context) (err error) {
	c := &Comparison{Items: 100_000, Activities: 3000, Slots: b.maxClients()}
	count := compareRounds
	if b.Quick {
		c.Items, c.Activities, count = 10_000, 500, 1
	}
	served, err := b.serve(ctx, "light", b.newSeat(timeSliced, b.maxClients()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, served.stop()) }()
	env, err := served.warm(ctx)
	if err != nil {
		return err
	}
	queue := "gpumux-bench-" + rand.Text()
	plain := worker.New(b.Starter.Client, queue, worker.Options{MaxConcurrentActivityTaskPollers: 10, MaxConcurrentWorkflowTaskPollers: 4})
	plain.RegisterActivity(nothing)
	plain.RegisterWorkflow(eachItem)
	if err := plain.Start(); err != nil {
		return fmt.Errorf("start a plain Temporal worker: %w", err)
	}
	defer plain.Stop()
	activities := func(ctx context.Context, items int) error {
		run, err := b.Starter.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: queue, WorkflowExecutionTimeout: activityTime},
			eachItem, items)
		if err == nil {
			err = run.Get(ctx, nil)
		}
		if err != nil {
			return cmp.Or(context.Cause(ctx), fmt.Errorf("run an activity per item: %w", err))
		}
		return nil
	}
	if err := activities(ctx, 100); err != nil { // warms its pollers up
		return err
	}
	for n := range count {
		say := func(tool string) { b.Say(fmt.Sprintf("round %d of %d: %s", n+1, count, tool)) }
		round := map[string]float64{}
		say("gpumux")
		out, err := served.run(ctx, gpumux.MapInput{Range: &gpumux.Range{End: int64(c.Items)}})
		if err != nil {
			return err
		}
		round["gpumux"] = float64(c.Items) / out.total.Seconds()
		say("multiprocessing.Pool")
		if err := b.ask(ctx, environ(env), &round, "tools", strconv.Itoa(c.Slots), strconv.Itoa(c.Items)); err != nil {
			return err
		}
		say("an activity per item")
		began := time.Now()
		if err := activities(ctx, c.Activities); err != nil {
			return err
		}
		round["activity"] = float64(c.Activities) / time.Since(began).Seconds()
		c.Rounds = append(c.Rounds, round)
	}
	b.report.Comparison = c
	return nil
}

func nothing(context.Context, int) (int, error) { return 0, nil }

// eachItem is the workflow of plain Temporal: an activity per item, with a window of them
// in flight.
func eachItem(ctx workflow.Context, items int) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	var inFlight []workflow.Future
	for i := range items + activityWindow {
		if i >= activityWindow && len(inFlight) > 0 {
			if err := inFlight[0].Get(ctx, nil); err != nil {
				return err
			}
			inFlight = inFlight[1:]
		}
		if i < items {
			inFlight = append(inFlight, workflow.ExecuteActivity(ctx, nothing, i))
		}
	}
	return nil
}

// table compares the tools by the medians of their rounds; gpumux is compared within a
// round.
func (c *Comparison) table() [][]string {
	items, each := humanize.Comma(int64(c.Items))+" trivial items", humanize.Comma(int64(c.Activities))
	pool := fmt.Sprintf("multiprocessing.Pool(%d)", c.Slots)
	rows := [][]string{{"TOOL", "WHAT", "ITEMS/S", "GPUMUX DOES"}}
	for _, tool := range [][3]string{
		{"gpumux", "gpumux", items + ", submission to merged file, " + english.Plural(c.Slots, "slot", "")},
		{"poolOne", pool, items + ", chunksize 1"},
		{"poolDefault", pool, items + ", default chunksize"},
		{"activity", "plain Temporal", each + " activities in Go that do nothing"},
	} {
		var rates, gpumuxes []float64
		for _, round := range c.Rounds {
			rates, gpumuxes = append(rates, round[tool[0]]), append(gpumuxes, round["gpumux"])
		}
		rows = append(rows, []string{tool[1], tool[2], figure(median(rates)), figure(median(ratios(gpumuxes, rates))) + "×"})
	}
	return rows
}
