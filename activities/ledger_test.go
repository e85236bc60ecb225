package activities

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/recovery"
	"github.com/gpumux/gpumux/internal/store"
)

// held keeps the results that it is given.
type held struct{ fresh []gpumux.Result }

func (h *held) put(r gpumux.Result) { h.fresh = append(h.fresh, r) }

// recorded is a ledger whose results go nowhere.
func recorded(chunk contract.Chunk, runs contract.Runs, m memo) *ledger {
	l := newLedger(chunk, runs, m)
	l.put = func(gpumux.Result) {}
	return l
}

var position = store.Position{Writer: "0123456789abcdef", Number: 1}

func value(index int64) gpumux.Result {
	return gpumux.Result{Index: index, Value: json.RawMessage("1")}
}

// nextOf is what the next call runs, and how.
func nextOf(l *ledger) (items contract.Runs, clean, whole bool) {
	items, call := l.next()
	return items, call.Clean, call.Whole
}

// blame is what becomes of an item after a fault; "" while it is tried again.
func blame(l *ledger, ran contract.Runs, fault *gpumux.Fault) (index int64, end string) {
	d := l.judge(ran, fault)
	if d.Step != recovery.Rerun {
		end = d.Text
	}
	return d.Index, end
}

func avoidedBy(l *ledger) []string {
	_, call := l.next()
	return call.Avoid
}

func span(start, end int64) contract.Span { return contract.Span{Start: start, End: end} }

func TestLedger_RunsEverythingUpToASuspectAndTheSuspectAlone(t *testing.T) {
	l := recorded(contract.Chunk{Parts: "p"}, contract.Runs{span(10, 20)}, memo{History: recovery.History{Suspects: map[int64]recovery.Suspect{13: {}}}})
	spans, alone, _ := nextOf(l)
	require.Equal(t, contract.Runs{span(10, 13)}, spans)
	require.False(t, alone)
	for i := int64(10); i < 13; i++ {
		l.book(value(i))
	}
	spans, alone, _ = nextOf(l)
	require.Equal(t, contract.Runs{span(13, 14)}, spans)
	require.True(t, alone)
	l.book(value(13))
	require.Empty(t, l.memo.Suspects, "an item that went well is no suspect")
	spans, alone, _ = nextOf(l)
	require.Equal(t, contract.Runs{span(14, 20)}, spans)
	require.False(t, alone)
}

func TestLedger_AnItemIsJudgedAfterTwoDeathsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		kind    gpumux.FaultKind
		larger  bool
		company bool
		end     string
	}{
		"crash":                {gpumux.FaultCrash, true, false, "it is recorded as failed"},
		"crash after others":   {gpumux.FaultCrash, true, true, "it is recorded as failed"},
		"memory on the ladder": {gpumux.FaultDeviceOOM, true, false, "it goes to the next pool"},
		"memory at its end":    {gpumux.FaultDeviceOOM, false, false, "it is recorded as failed"},
	} {
		t.Run(name, func(t *testing.T) {
			l := recorded(contract.Chunk{Parts: "p", Larger: c.larger}, contract.Runs{span(0, 3)}, memo{})
			l.book(value(0))
			all := contract.Runs{span(0, 3)}
			if c.company {
				index, end := blame(l, all, &gpumux.Fault{Kind: c.kind})
				require.EqualValues(t, 1, index)
				require.Empty(t, end, "its company may be to blame")
			}
			_, end := blame(l, all, &gpumux.Fault{Kind: c.kind, Alone: true})
			require.Empty(t, end)
			index, end := blame(l, all, &gpumux.Fault{Kind: c.kind, Alone: true})
			require.EqualValues(t, 1, index)
			require.Equal(t, c.end, end)
			spans, alone, _ := nextOf(l)
			require.Equal(t, contract.Runs{span(2, 3)}, spans)
			require.False(t, alone)
			if c.kind.Memory() && c.larger {
				require.Equal(t, contract.Runs{span(1, 2)}, l.memo.Escalate)
				require.Zero(t, l.result.Failed)
			} else {
				require.EqualValues(t, 1, l.result.Failed)
				tries := 2
				if c.company {
					tries = 3
				}
				require.Equal(t, tries, l.result.Recent[0].Fault.Attempts)
			}
		})
	}
}

func TestLedger_TheNextAttemptKnowsWhatTheLastLeft(t *testing.T) {
	chunk, items := contract.Chunk{Larger: true}, contract.Runs{span(0, 5)}
	l := newLedger(chunk, items, memo{})
	l.book(value(0))
	for range 2 {
		blame(l, contract.Runs{span(0, 5)}, &gpumux.Fault{Kind: gpumux.FaultBudget, Alone: true})
	}
	blame(l, contract.Runs{span(0, 5)}, &gpumux.Fault{Kind: gpumux.FaultCrash})
	data, err := json.Marshal(l.snapshot("the store is full"))
	require.NoError(t, err)
	var m memo
	require.NoError(t, json.Unmarshal(data, &m))
	require.Equal(t, "the store is full", m.Waiting)
	require.EqualValues(t, 1, m.Finished)
	again := newLedger(chunk, items, m)
	again.restore(0, "")
	spans, alone, _ := nextOf(again)
	require.Equal(t, contract.Runs{span(2, 3)}, spans, "0 is finished, 1 escalated, 2 suspected")
	require.True(t, alone)
	require.EqualValues(t, 1, again.result.Succeeded)
	feeding := newLedger(contract.Chunk{Feeds: true}, items, memo{})
	feeding.book(value(0))
	require.Zero(t, feeding.snapshot("").Finished, "it goes on to the next stage")
}

func TestLedger_FailuresAreShownShort(t *testing.T) {
	l := recorded(contract.Chunk{Parts: "p"}, contract.Runs{span(0, 9)}, memo{})
	stream := &held{}
	l.storeTo(stream.put, position, 1)
	for i := range int64(5) {
		l.book(gpumux.Result{Index: i, Fault: &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: "m", Traceback: "long", Tail: "long"}})
	}
	require.Len(t, l.result.Recent, maxRecent)
	require.Empty(t, l.result.Recent[0].Fault.Traceback)
	require.Equal(t, "long", stream.fresh[0].Fault.Traceback, "the stored fault keeps everything")
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultTaskError: 5}, l.result.Faults)
}

// A chunk of scattered items counts by position, but its answers name indices.
func TestLedger_ScatteredItems(t *testing.T) {
	items := contract.Runs{span(5, 7), span(100, 103), span(1<<40, 1<<40+1)}
	l := recorded(contract.Chunk{Parts: "p", Larger: true}, items, memo{})
	var indexes []int64
	for at, index := range l.board.open(items) {
		require.EqualValues(t, len(indexes), at)
		indexes = append(indexes, index)
	}
	require.Equal(t, []int64{5, 6, 100, 101, 102, 1 << 40}, indexes)
	for _, index := range []int64{-1, 0, 4, 7, 99, 103, 1<<40 - 1, 1<<40 + 1} {
		_, ok := l.board.at(index)
		require.False(t, ok, index)
		l.restore(index, "") // what another chunk stored in the same part
	}
	require.Zero(t, l.result.Succeeded)
	for range 2 {
		l.restore(6, "")
		l.restore(101, gpumux.FaultCrash)
	}
	next, _, _ := nextOf(l)
	require.Equal(t, contract.Runs{span(5, 6), span(100, 101), span(102, 103), span(1<<40, 1<<40+1)}, next)
	for range 2 {
		blame(l, next, &gpumux.Fault{Kind: gpumux.FaultDeviceOOM, Alone: true})
	}
	blame(l, next, &gpumux.Fault{Kind: gpumux.FaultCrash, Batch: 2})
	require.EqualValues(t, 5, l.memo.Search, "up to the position of item 102")
	next, _, _ = nextOf(l)
	require.Equal(t, contract.Runs{span(100, 101)}, next)
	l.escalate(items)
	require.Equal(t, contract.Runs{span(5, 6), span(100, 101), span(102, 103), span(1<<40, 1<<40+1)}, l.memo.Escalate)
	require.EqualValues(t, 1, l.result.Succeeded)
	require.EqualValues(t, 1, l.result.Failed)
}

// One item of a micro-batch ends the process. Halves run until only that item is left.
func TestLedger_ACulpritInAMicroBatchIsFoundInHalves(t *testing.T) {
	const culprit, batch = 37, 32
	l := recorded(contract.Chunk{Parts: "p"}, contract.Runs{span(0, 100)}, memo{})
	deaths, calls := 0, 0
	for {
		spans, _, _ := nextOf(l)
		if len(spans) == 0 {
			break
		}
		calls++
		require.Less(t, calls, 30)
		for at := spans[0].Start; at < spans[0].End; {
			// The slot runs each micro-batch as a whole or not at all.
			end := min(at+batch, spans[0].End)
			if at <= culprit && culprit < end {
				deaths++
				_, end := blame(l, spans, &gpumux.Fault{Kind: gpumux.FaultCrash, Batch: int(end - at), Alone: end-at == 1})
				require.Equal(t, l.board.done[culprit], end != "")
				break
			}
			for ; at < end; at++ {
				l.book(value(at))
			}
		}
	}
	require.EqualValues(t, 99, l.result.Succeeded)
	require.EqualValues(t, 1, l.result.Failed)
	require.LessOrEqual(t, deaths, 1+5+2, "once whole, by halves, and alone twice")
	require.Zero(t, l.memo.Search)
}

// Of items that run at the same time none is suspected before a second process has ended
// with it. Those in flight both times are searched, without other calls beside them.
func TestLedger_ADeathBesideOthersIsNobodysAtFirst(t *testing.T) {
	l := recorded(contract.Chunk{Parts: "p"}, contract.Runs{span(0, 20)}, memo{})
	all := contract.Runs{span(0, 20)}
	death := &gpumux.Fault{Kind: gpumux.FaultCrash, Batch: 8, Concurrent: true}
	died := func() {
		t.Helper()
		_, end := blame(l, all, death)
		require.Empty(t, end)
		require.Empty(t, l.memo.Suspects)
		l = recorded(contract.Chunk{Parts: "p"}, all, l.snapshot(""))
		for i := range int64(20) {
			if i != 3 && i < 8 {
				l.restore(i, "") // in the order of ends
			}
		}
	}
	died()
	run, call := l.next()
	require.Equal(t, contract.Runs{span(3, 4), span(8, 20)}, run)
	require.False(t, call.Apart || call.Clean)
	require.False(t, l.memo.Search > 0)
	died()
	require.True(t, l.memo.Search > 0, "item 3 was in both")
	run, call = l.next()
	require.Equal(t, contract.Runs{span(3, 4)}, run)
	require.True(t, call.Apart)
	require.False(t, call.Clean, "it may be innocent, and a process may be dear")
	l.book(value(3))
	run, call = l.next()
	require.Equal(t, contract.Runs{span(8, 20)}, run)
	require.False(t, call.Apart)
	died()
	require.False(t, l.memo.Search > 0, "these have seen one death")
}

// A chunk that was cut before anybody knew what a slot takes at a time goes back, unless
// something of it has run.
func TestLedger_AGuessedChunkGoesBack(t *testing.T) {
	several := calls.Process{Edition: "e", Concurrent: 8}
	l := recorded(contract.Chunk{Parts: "p", Guessed: true}, contract.Runs{span(0, 20)}, memo{})
	require.NoError(t, l.meet(calls.Process{Edition: "e"}), "one after the other")
	require.ErrorIs(t, l.meet(several), errGuessed)
	run, _ := l.next()
	require.Empty(t, run)
	out := l.finish()
	require.Zero(t, out.Covered)
	require.EqualValues(t, 8, out.Concurrent)
	require.Zero(t, out.Pace)

	l = recorded(contract.Chunk{Parts: "p", Guessed: true}, contract.Runs{span(0, 20)}, memo{})
	l.restore(5, "")
	require.NoError(t, l.meet(several))
	l = recorded(contract.Chunk{Parts: "p"}, contract.Runs{span(0, 20)}, memo{})
	require.NoError(t, l.meet(several))
}

// Items that run at the same time share the time of their slot.
func TestLedger_BusyOfItemsAtTheSameTime(t *testing.T) {
	l := recorded(contract.Chunk{Parts: "p", Limit: gpumux.Duration(time.Hour)}, contract.Runs{span(0, 3)}, memo{})
	l.next()
	require.NoError(t, l.meet(calls.Process{Concurrent: 8}))
	for i := range int64(2) {
		_, _, err := l.take(i, nil)
		require.NoError(t, err)
		l.add(calls.Done{Result: value(i), Busy: time.Second, Concurrent: true})
	}
	l.limit.after = time.Nanosecond
	l.next()
	out := l.finish()
	require.Equal(t, gpumux.Duration(2*time.Second), out.Busy)
	require.Equal(t, gpumux.Duration(time.Second), out.Pace)
}

// When a micro-batch dies once and then succeeds, no item is to blame.
func TestLedger_AHuntThatFindsNobodyEnds(t *testing.T) {
	l := recorded(contract.Chunk{Parts: "p"}, contract.Runs{span(0, 20)}, memo{})
	_, end := blame(l, contract.Runs{span(0, 20)}, &gpumux.Fault{Kind: gpumux.FaultCrash, Batch: 8})
	require.Empty(t, end)
	require.Empty(t, l.memo.Suspects)
	var sizes []int64
	for {
		spans, _, _ := nextOf(l)
		if len(spans) == 0 {
			break
		}
		sizes = append(sizes, spans[0].End-spans[0].Start)
		for i := spans[0].Start; i < spans[0].End; i++ {
			l.book(value(i))
		}
	}
	require.Equal(t, []int64{4, 2, 1, 1, 12}, sizes)
}

func TestLedger_AvoidsDevicesThatMayBeToBlameUntilAnItemFinishes(t *testing.T) {
	l := recorded(contract.Chunk{Parts: "p"}, contract.Runs{span(0, 3)}, memo{})
	blame(l, contract.Runs{span(0, 3)}, &gpumux.Fault{Kind: gpumux.FaultCrash, Device: "GPU-a"})
	require.Empty(t, avoidedBy(l), "nothing points at the device")
	for range 2 {
		blame(l, contract.Runs{span(0, 3)}, &gpumux.Fault{Kind: gpumux.FaultCrash, Device: "GPU-a", Suspect: true})
	}
	l = recorded(contract.Chunk{Parts: "p"}, contract.Runs{span(0, 3)}, l.snapshot(""))
	require.Equal(t, []string{"GPU-a"}, avoidedBy(l))
	l.book(value(0))
	require.Empty(t, avoidedBy(l))
}
