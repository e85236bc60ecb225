package activities

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func value(index int64) gpumux.Result {
	return gpumux.Result{Index: index, Value: json.RawMessage("1")}
}

func span(start, end int64) gpumux.Span { return gpumux.Span{Start: start, End: end} }

func TestLedger_RunsEverythingUpToASuspectAndTheSuspectAlone(t *testing.T) {
	l := newLedger(gpumux.Chunk{Start: 10, End: 20, Parts: "p"}, memo{Suspects: map[int64]suspect{13: {}}})
	spans, alone, _ := l.next()
	require.Equal(t, []gpumux.Span{span(10, 13)}, spans)
	require.False(t, alone)
	for i := int64(10); i < 13; i++ {
		l.add(value(i))
	}
	spans, alone, _ = l.next()
	require.Equal(t, []gpumux.Span{span(13, 14)}, spans)
	require.True(t, alone)
	l.add(value(13))
	require.Empty(t, l.memo.Suspects, "an item that went well is no suspect")
	spans, alone, _ = l.next()
	require.Equal(t, []gpumux.Span{span(14, 20)}, spans)
	require.False(t, alone)
}

func TestLedger_HolesAreSpans(t *testing.T) {
	l := newLedger(gpumux.Chunk{Start: 0, End: 6, Parts: "p"}, memo{})
	l.add(value(0))
	l.add(value(3))
	spans, _, _ := l.next()
	require.Equal(t, []gpumux.Span{span(1, 3), span(4, 6)}, spans)
}

func TestLedger_AnItemIsJudgedAfterTwoDeathsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		kind    gpumux.Kind
		larger  bool
		company bool
		verdict string
	}{
		"crash":                {gpumux.Crash, true, false, "recorded as failed"},
		"crash after others":   {gpumux.Crash, true, true, "recorded as failed"},
		"memory on the ladder": {gpumux.DeviceOOM, true, false, "goes to the next pool of the ladder"},
		"memory at its end":    {gpumux.DeviceOOM, false, false, "recorded as failed"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(gpumux.Chunk{Start: 0, End: 3, Parts: "p", Larger: c.larger}, memo{})
			l.add(value(0))
			all := []gpumux.Span{span(0, 3)}
			if c.company {
				index, verdict := l.blame(all, &gpumux.Fault{Kind: c.kind})
				require.EqualValues(t, 1, index)
				require.Empty(t, verdict, "its company may be to blame")
			}
			_, verdict := l.blame(all, &gpumux.Fault{Kind: c.kind, Alone: true})
			require.Empty(t, verdict)
			index, verdict := l.blame(all, &gpumux.Fault{Kind: c.kind, Alone: true})
			require.EqualValues(t, 1, index)
			require.Equal(t, c.verdict, verdict)
			spans, alone, _ := l.next()
			require.Equal(t, []gpumux.Span{span(2, 3)}, spans)
			require.False(t, alone)
			if c.kind.Memory() && c.larger {
				require.Equal(t, []int64{1}, l.result.Escalate)
				require.Zero(t, l.result.Failed)
			} else {
				require.EqualValues(t, 1, l.result.Failed)
				tries := 2
				if c.company {
					tries = 3
				}
				require.Equal(t, tries, l.fresh[1].Fault.Attempts)
			}
		})
	}
}

func TestLedger_TheNextAttemptKnowsWhatTheLastLeft(t *testing.T) {
	chunk := gpumux.Chunk{Start: 0, End: 5, Inline: true, Parts: "p", Larger: true}
	l := newLedger(chunk, memo{})
	l.add(value(0))
	for range 2 {
		l.blame([]gpumux.Span{span(0, 5)}, &gpumux.Fault{Kind: gpumux.Budget, Alone: true})
	}
	l.blame([]gpumux.Span{span(0, 5)}, &gpumux.Fault{Kind: gpumux.Crash})
	l.wait("the store is full")
	data, err := json.Marshal(l.snapshot())
	require.NoError(t, err)
	var m memo
	require.NoError(t, json.Unmarshal(data, &m))
	require.Equal(t, "the store is full", m.Waiting)
	again := newLedger(chunk, m)
	spans, alone, _ := again.next()
	require.Equal(t, []gpumux.Span{span(2, 3)}, spans, "0 is finished, 1 escalated, 2 suspected")
	require.True(t, alone)
	require.EqualValues(t, 1, again.result.Succeeded)
	require.Len(t, again.fresh, 1, "what only the heartbeat holds must still be stored if results outgrow the history")
}

func TestLedger_ResultsThatOutgrowTheHistoryLeaveTheHeartbeat(t *testing.T) {
	l := newLedger(gpumux.Chunk{Start: 0, End: 2, Inline: true, Parts: "p"}, memo{})
	l.add(gpumux.Result{Index: 0, Value: make(json.RawMessage, inlineResults)})
	require.False(t, l.inline())
	require.Empty(t, l.snapshot().Results)
	require.Len(t, l.fresh, 1)
}

func TestLedger_FailuresAreShownShort(t *testing.T) {
	l := newLedger(gpumux.Chunk{Start: 0, End: 9, Parts: "p"}, memo{})
	for i := range int64(5) {
		l.add(gpumux.Result{Index: i, Fault: &gpumux.Fault{Kind: gpumux.TaskError, Message: "m", Traceback: "long", Tail: "long"}})
	}
	require.Len(t, l.result.Recent, keepRecent)
	require.Empty(t, l.result.Recent[0].Fault.Traceback)
	require.Equal(t, "long", l.fresh[0].Fault.Traceback, "the stored fault keeps everything")
	require.Equal(t, map[gpumux.Kind]int64{gpumux.TaskError: 5}, l.result.Faults)
}

func TestLedger_WantOfMemoryAloneAsksForTheWholeDevice(t *testing.T) {
	l := newLedger(gpumux.Chunk{Start: 0, End: 2, Parts: "p"}, memo{})
	all := []gpumux.Span{span(0, 2)}
	l.blame(all, &gpumux.Fault{Kind: gpumux.DeviceOOM})
	_, alone, whole := l.next()
	require.True(t, alone)
	require.False(t, whole, "a clean process comes first")
	l.blame(all, &gpumux.Fault{Kind: gpumux.DeviceOOM, Alone: true})
	_, alone, whole = l.next()
	require.True(t, alone)
	require.True(t, whole)
}

// One item of a micro-batch ends the process: halves are run until it is the only one left.
func TestLedger_ACulpritInAMicroBatchIsFoundInHalves(t *testing.T) {
	const culprit, batch = 37, 32
	l := newLedger(gpumux.Chunk{Start: 0, End: 100, Parts: "p"}, memo{})
	deaths, calls := 0, 0
	for {
		spans, _, _ := l.next()
		if len(spans) == 0 {
			break
		}
		calls++
		require.Less(t, calls, 30)
		for at := spans[0].Start; at < spans[0].End; {
			// What the slot does: micro-batches, each as a whole or not at all.
			end := min(at+batch, spans[0].End)
			if at <= culprit && culprit < end {
				deaths++
				_, verdict := l.blame(spans, &gpumux.Fault{Kind: gpumux.Crash, Batch: int(end - at), Alone: end-at == 1})
				require.Equal(t, l.done[culprit], verdict != "")
				break
			}
			for ; at < end; at++ {
				l.add(value(at))
			}
		}
	}
	require.EqualValues(t, 99, l.result.Succeeded)
	require.EqualValues(t, 1, l.result.Failed)
	require.LessOrEqual(t, deaths, 1+5+2, "once whole, by halves, and alone twice")
	require.Zero(t, l.memo.Hunt)
}

// A micro-batch that dies once and then goes well blames nobody.
func TestLedger_AHuntThatFindsNobodyEnds(t *testing.T) {
	l := newLedger(gpumux.Chunk{Start: 0, End: 20, Parts: "p"}, memo{})
	_, verdict := l.blame([]gpumux.Span{span(0, 20)}, &gpumux.Fault{Kind: gpumux.Crash, Batch: 8})
	require.Empty(t, verdict)
	require.Empty(t, l.memo.Suspects)
	var sizes []int64
	for {
		spans, _, _ := l.next()
		if len(spans) == 0 {
			break
		}
		sizes = append(sizes, spans[0].End-spans[0].Start)
		for i := spans[0].Start; i < spans[0].End; i++ {
			l.add(value(i))
		}
	}
	require.Equal(t, []int64{4, 2, 1, 1, 12}, sizes)
}
