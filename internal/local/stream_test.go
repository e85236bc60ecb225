package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/workers/config"
)

type taking = func(item []byte, wrong *gpumux.SourceError) error

const streamedPy = `
import asyncio, os, time
import gpumux
begun, changed = 0, asyncio.Event()
@gpumux.concurrent(max=4)
async def meet(others):
    global begun
    begun += 1
    changed.set()
    while begun < others:
        changed.clear()
        await changed.wait()
    return begun
def run(item):
    if item == "raise": raise ValueError("no")
    if item == "die": os._exit(3)
    while isinstance(item, str) and item.startswith("/") and not os.path.exists(item): time.sleep(0.005)
    return item
class unprepared:
    def __init__(self): raise ValueError("not prepared")
    def __call__(self, item): return item
`

// streamOver streams items that a test feeds through a function, in two slots.
func streamOver(t *testing.T, in local.StreamOptions) (lines []string, err error) {
	t.Helper()
	for line, err := range streamLines(t, t.Context(), "run", in) {
		if err != nil {
			return lines, err
		}
		if len(line) > 0 {
			lines = append(lines, string(line))
		}
	}
	return lines, nil
}

func streamLines(t *testing.T, ctx context.Context, function string, in local.StreamOptions) func(func([]byte, error) bool) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "streamed.py")
	write(t, file, streamedPy)
	task, err := local.FindTask(file+":"+function, config.Task{})
	require.NoError(t, err)
	slots := config.Slots(2)
	if function == "meet" {
		slots = 1
	}
	pools, _, err := local.Pools(nil, []string{"cpu"}, config.Pool{Slots: slots})
	require.NoError(t, err)
	return local.Stream(ctx, local.Options{Task: task, Pools: pools}, in)
}

func items(all ...string) func(context.Context, taking) error {
	return func(_ context.Context, give taking) error {
		for _, item := range all {
			if err := give([]byte(item), nil); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestStream_InOrderWithFaults(t *testing.T) {
	var all []string
	for i := range 500 {
		all = append(all, strconv.Itoa(i))
	}
	all[3], all[100] = `"raise"`, `"die"`
	lines, err := streamOver(t, local.StreamOptions{Items: items(all...)})
	require.NoError(t, err)
	require.Len(t, lines, 500)
	for i, line := range lines {
		switch i {
		case 3:
			require.Contains(t, line, `{"index":3,"fault":{"kind":"task_error"`)
		case 100:
			require.Contains(t, line, `{"index":100,"fault":{"kind":"crash"`)
		default:
			require.Equal(t, fmt.Sprintf(`{"index":%d,"value":%d}`, i, i), line)
		}
	}
}

// A line that is wrong costs its own item: the items before and behind it run, and it has
// a result in its place.
func TestStream_ABadLineCostsOneItem(t *testing.T) {
	wrong := &gpumux.SourceError{Name: "items.jsonl", Line: 2, Problem: "not JSON", Text: "{", Hint: "write JSON"}
	for _, key := range []string{"", "id"} {
		lines, err := streamOver(t, local.StreamOptions{Input: gpumux.MapInput{Key: key}, Items: func(ctx context.Context, give taking) error {
			return errors.Join(items(`{"id":"a"}`)(ctx, give), give(nil, wrong), items(`{"id":"b"}`)(ctx, give))
		}})
		require.NoError(t, err)
		require.Len(t, lines, 3)
		require.Contains(t, lines[0], `{"index":0,"value":{"id":"a"}`)
		require.Contains(t, lines[1], `{"index":1,"fault":{"kind":"bad_input","item":"{","op":"read","message":"items.jsonl:2: not JSON"`)
		require.Contains(t, lines[1], `"hint":"write JSON"`)
		require.Equal(t, key != "", strings.HasSuffix(lines[1], `,"key":null}`))
		require.Contains(t, lines[2], `{"index":2,"value":{"id":"b"}`)
	}
}

// The first four items wait for each other, so a slot must not have one of them alone
// until it is known what an item takes.
func TestStream_ConcurrentItemsOverlap(t *testing.T) {
	seen := 0
	for line, err := range streamLines(t, t.Context(), "meet", local.StreamOptions{Items: items("4", "4", "4", "4", "4", "4", "4", "4", "4", "4")}) {
		require.NoError(t, err)
		if len(line) > 0 {
			require.Contains(t, string(line), `"value"`)
			seen++
		}
	}
	require.Equal(t, 10, seen)
}

// While the first item runs, no more is read than what is bounded, though all the others
// have finished.
func TestStream_ReadsAheadWithinBounds(t *testing.T) {
	const limit = 8 // of 8 MiB each there is room for seven, and one waits
	gate, large := filepath.Join(t.TempDir(), "gate"), []byte(`"`+strings.Repeat("x", 8<<20)+`"`)
	var yielded atomic.Int64
	held := func(_ context.Context, give taking) error {
		if err := give([]byte(strconv.Quote(gate)), nil); err != nil {
			return err
		}
		for number := range int64(16) {
			if number == limit-2 {
				require.NoError(t, os.WriteFile(gate, nil, 0o600))
			}
			if ahead := number - yielded.Load(); ahead > limit {
				return fmt.Errorf("%d items ahead", ahead)
			}
			if err := give(large, nil); err != nil {
				return err
			}
		}
		return nil
	}
	for line, err := range streamLines(t, t.Context(), "run", local.StreamOptions{Items: held}) {
		require.NoError(t, err)
		if len(line) > 0 {
			yielded.Add(1)
		}
	}
	require.EqualValues(t, 17, yielded.Load())
}

func TestStream_Ends(t *testing.T) {
	mistake := errors.New("the disk is gone")
	lines, err := streamOver(t, local.StreamOptions{Items: func(ctx context.Context, give taking) error {
		return errors.Join(items("0", "1")(ctx, give), mistake)
	}})
	require.ErrorIs(t, err, mistake)
	require.Len(t, lines, 2, "what came before has its results")

	for _, err = range streamLines(t, t.Context(), "lacking", local.StreamOptions{Items: items("0")}) {
	}
	require.ErrorAs(t, err, new(*config.Error))

	// Nobody waits for an input that may never go on.
	pausing := func(ctx context.Context, give taking) error {
		if err := give([]byte("0"), nil); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for _, err = range streamLines(t, t.Context(), "unprepared", local.StreamOptions{Items: pausing}) {
	}
	require.ErrorContains(t, err, "not prepared")

	endless := func(_ context.Context, give taking) error {
		for {
			if err := give([]byte("1"), nil); err != nil {
				return err
			}
		}
	}
	for line := range streamLines(t, t.Context(), "run", local.StreamOptions{Items: endless}) {
		if len(line) > 0 {
			break
		}
	}
	stopped := errors.New("stopped from outside")
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	for line, ended := range streamLines(t, ctx, "run", local.StreamOptions{Items: endless}) {
		if err = ended; len(line) > 0 {
			stop(stopped)
		}
	}
	require.ErrorIs(t, err, stopped)
}
