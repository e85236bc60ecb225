package activities

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/recovery"
)

// coded is a Runner whose code has an edition.
type coded struct {
	edition string
	calls   []calls.Call
}

func (c *coded) Run(_ context.Context, call calls.Call, work calls.Work) error {
	c.calls = append(c.calls, call)
	if call.Edition != "" && call.Edition != c.edition {
		return &gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Task: "coded", Edition: c.edition, Message: "the code is another"}
	}
	if err := work.Meet(calls.Process{Edition: c.edition}); err != nil {
		return err
	}
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		work.Done(calls.Done{Result: gpumux.Result{Index: item.Index, Value: item.Value}})
	}
	return nil
}

func TestRunChunk_TellsTheEditionThatItsItemsRanWith(t *testing.T) {
	runner := &coded{edition: "aaaaaa+bbbbbb"}
	l := newLab(t, runner)
	l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
	chunk := contract.Chunk{Range: &gpumux.Range{End: 3}, Work: contract.Whole(3), Parts: "m/parts"}
	encoded, err := l.env.ExecuteActivity("chunk", chunk)
	require.NoError(t, err)
	var result contract.ChunkResult
	require.NoError(t, encoded.Get(&result))
	require.Equal(t, runner.edition, result.Edition)

	// A further attempt asks for the edition of the earlier one.
	l.env.SetHeartbeatDetails(memo{Edition: "cccccc"})
	_, err = l.env.ExecuteActivity("chunk", chunk)
	require.ErrorContains(t, err, "the code is another")
	require.Equal(t, "cccccc", runner.calls[len(runner.calls)-1].Edition)
}

// Another worker may have the edition, so the chunk goes back, for as long as there is
// such a worker. This ends at once if there is no other worker, and after some tries if
// none has the edition.
func TestElsewhere_LastsWhileAWorkerHasTheEdition(t *testing.T) {
	two := func(context.Context) int { return 2 }
	for _, c := range []struct {
		name    string
		workers func(context.Context) int
		has     string
		tries   int
		final   bool
		delay   time.Duration
	}{
		{"Alone", func(context.Context) int { return 1 }, "aaaaaa", 0, true, 0},
		{"Unknown", nil, "aaaaaa", 0, true, 0},
		{"First", two, "cccccc", 0, false, 2 * retryDelay},
		{"Later", two, "cccccc", recovery.MaxRefused - 2, false, elsewhereDelay},
		{"Last", two, "cccccc", recovery.MaxRefused - 1, true, 0},
		{"Had", two, "aaaaaa", recovery.MaxRefused - 1, false, elsewhereDelay},
		{"StillHad", two, "aaaaaa", 100*recovery.MaxRefused - 1, false, elsewhereDelay},
		{"Gone", two, "cccccc", 100*recovery.MaxRefused - 1, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			runner := &coded{edition: "bbbbbb"}
			l := newLab(t, runner)
			l.pool.Workers = c.workers
			l.pool.Others = func(_ context.Context, task, edition string) bool { return task == "coded" && edition == c.has }
			l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
			l.env.SetHeartbeatDetails(memo{History: recovery.History{Refused: c.tries}})
			_, err := l.env.ExecuteActivity("chunk", contract.Chunk{Edition: "aaaaaa", Range: &gpumux.Range{End: 3}, Work: contract.Whole(3), Parts: "m/parts"})
			var app *temporal.ApplicationError
			require.ErrorAs(t, err, &app)
			require.Equal(t, c.final, app.NonRetryable())
			require.Equal(t, c.delay, app.NextRetryDelay())
			var fault gpumux.Fault
			require.NoError(t, app.Details(&fault))
			require.Equal(t, "bbbbbb", fault.Edition)
		})
	}
}

// A chunk of a map that takes any edition asks for none, and where the code changes under
// a call it is tried again.
func TestRunChunk_TakesAnyEdition(t *testing.T) {
	runner := &coded{edition: "aaaaaa"}
	l := newLab(t, runner)
	l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
	chunk := contract.Chunk{Edition: gpumux.AnyEdition, Range: &gpumux.Range{End: 3}, Work: contract.Whole(3), Parts: "m/parts"}
	encoded, err := l.env.ExecuteActivity("chunk", chunk)
	require.NoError(t, err)
	var result contract.ChunkResult
	require.NoError(t, encoded.Get(&result))
	require.EqualValues(t, 3, result.Succeeded)
	require.Empty(t, result.Edition, "no other chunk is held to it")
	require.Empty(t, runner.calls[0].Edition)

	for tries, final := range map[int]bool{0: false, recovery.MaxRefused - 1: true} {
		l := newLab(t, changing{})
		l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
		l.env.SetHeartbeatDetails(memo{History: recovery.History{Refused: tries}})
		_, err = l.env.ExecuteActivity("chunk", chunk)
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		require.Equal(t, final, app.NonRetryable(), "%d", tries)
	}
}

// changing is a Runner whose code changes while a process starts.
type changing struct{}

func (changing) Run(context.Context, calls.Call, calls.Work) error {
	return &gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Edition: "bbbbbb", Message: "the code is another"}
}

func TestFindEdition_OfAnUnknownTaskIsFinal(t *testing.T) {
	l := newLab(t, &coded{})
	l.env.RegisterActivityWithOptions(checked(l.pool.findEdition), activity.RegisterOptions{Name: "edition"})
	l.pool.Workers, l.pool.Slots = func(context.Context) int { return 3 }, func() int { return 8 }
	l.pool.Edition = func(task string) (string, error) {
		if task == "known" {
			return "aaaaaa", nil
		}
		return "", &gpumux.Fault{Kind: gpumux.FaultBadInput, Message: "no task " + task}
	}
	encoded, err := l.env.ExecuteActivity("edition", contract.EditionInput{Task: "known"})
	require.NoError(t, err)
	var edition contract.Edition
	require.NoError(t, encoded.Get(&edition))
	require.Equal(t, contract.Edition{Edition: "aaaaaa", Slots: 24}, edition)
	_, err = l.env.ExecuteActivity("edition", contract.EditionInput{Task: "other"})
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.True(t, app.NonRetryable())
}

// unstarting is a Runner for which no process starts.
type unstarting struct{ kind gpumux.FaultKind }

func (u unstarting) Run(context.Context, calls.Call, calls.Work) error {
	return &gpumux.Fault{Kind: u.kind, Op: "start", Message: "no process"}
}

// A start that is too slow costs minutes, so it is tried less often than one that fails.
func TestRunChunk_TriesASlowStartOnceMore(t *testing.T) {
	for _, c := range []struct {
		kind  gpumux.FaultKind
		tries int
		final bool
	}{
		{gpumux.FaultTimeout, 0, false}, {gpumux.FaultTimeout, 1, true}, {gpumux.FaultCrash, 1, false}, {gpumux.FaultCrash, 4, true},
	} {
		l := newLab(t, unstarting{c.kind})
		l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
		l.env.SetHeartbeatDetails(memo{History: recovery.History{Starts: c.tries}})
		_, err := l.env.ExecuteActivity("chunk", contract.Chunk{Range: &gpumux.Range{End: 3}, Work: contract.Whole(3), Parts: "m/parts"})
		var failed *temporal.ApplicationError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, c.final, failed.NonRetryable(), "%+v", c)
	}
}
