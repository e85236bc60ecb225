package process

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// written is an output, and what writes to it as a process does.
func written(t *testing.T) (*Output, func(text string)) {
	t.Helper()
	o, err := newOutput()
	require.NoError(t, err)
	t.Cleanup(o.close)
	return o, func(text string) {
		_, err := o.File.WriteString(text)
		require.NoError(t, err)
	}
}

// held is how much memory the file takes.
func held(o *Output) int64 {
	_, _, held := o.unread()
	return held
}

func TestOutput_OfAFileThatWasCutShort(t *testing.T) {
	t.Parallel()
	o, write := written(t)
	write(strings.Repeat("x", 3000))
	require.Len(t, o.UpTo(2000), 2000)
	require.NoError(t, o.File.Truncate(0))
	require.Empty(t, o.Tail())
	write("begins anew\n")
	require.Equal(t, "begins anew\n", o.Tail())
	require.Equal(t, "begins", o.UpTo(6))
	require.NoError(t, o.File.Truncate(2))
	require.Len(t, o.Rest(), 2)
	require.Empty(t, o.Rest())
}

func TestOutput_OffsetsThatAreNone(t *testing.T) {
	t.Parallel()
	o, write := written(t)
	write("one")
	for _, end := range []int64{0, -1, math.MinInt64} {
		require.Empty(t, o.UpTo(end))
	}
	require.Equal(t, "one", o.UpTo(math.MaxInt64))
	write("two")
	require.Empty(t, o.UpTo(2))
	require.Equal(t, "two", o.Tail())
	require.Equal(t, "two", o.UpTo(1<<60))
	o.close()
	require.Empty(t, o.Tail())
	require.Empty(t, o.Rest())
	o.trim()
}

// A file that is all holes, as large as a file can be, is not read whole, and neither is
// it filled.
func TestOutput_OfAFileThatIsHuge(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{1 << 40, math.MaxInt64} {
		o, _ := written(t)
		require.NoError(t, o.File.Truncate(size))
		o.trim()
		require.Len(t, o.Tail(), keepDeath)
		require.Less(t, len(o.Rest()), keepHead+keepTail+100)
		require.Zero(t, held(o))
		require.Empty(t, o.Rest())
	}
}

func TestOutput_WhatWasReadIsGivenBack(t *testing.T) {
	t.Parallel()
	o, write := written(t)
	line := strings.Repeat("x", 99) + "\n"
	for range 1000 {
		write(line)
		require.Equal(t, line, o.Rest())
	}
	require.LessOrEqual(t, held(o), int64(unix.Getpagesize()))
}

// Neither what is printed nor what the process reserves stays in memory for longer than
// until the next look.
func TestOutput_IsTrimmed(t *testing.T) {
	t.Parallel()
	o, write := written(t)
	write("the head ")
	for range 100 {
		write(strings.Repeat("x", 64<<10))
	}
	require.NoError(t, unix.Fallocate(int(o.File.Fd()), 0, 0, 32<<20))
	write(" the tail")
	o.trim()
	require.LessOrEqual(t, held(o), int64(64<<10))
	text := o.Rest()
	require.True(t, strings.HasPrefix(text, "the head xxx"))
	require.True(t, strings.HasSuffix(text, " the tail"))
	require.Contains(t, text, "bytes left out")
}

// A process may be far ahead of who reads: the outputs of many items wait. What a trim
// frees of them is said to be left out, and the others are whole.
func TestOutput_TrimsOfManyItems(t *testing.T) {
	t.Parallel()
	o, write := written(t)
	var ends []int64
	item := func(i int) string { return strings.Repeat(fmt.Sprintf("item %4d ", i), 1500) }
	next, whole := 0, 0
	read := func(n int) {
		for range n {
			text := o.UpTo(ends[next])
			require.NotContains(t, text, "\x00", "item %d", next)
			if text == item(next) {
				whole++
			} else {
				require.Contains(t, text, "bytes left out", "item %d", next)
			}
			next++
		}
	}
	add := func(n int) {
		for range n {
			write(item(len(ends)))
			ends = append(ends, int64(len(ends)+1)*int64(len(item(0))))
		}
		o.trim()
	}
	add(1000)
	read(500)
	require.Equal(t, 500, whole, "up to the limit all are kept")
	add(1500)
	read(1)
	add(1500)
	read(len(ends) - next)
	require.Less(t, whole, next, "beyond it some go")
	before := whole
	add(1000)
	read(1000)
	require.Equal(t, before+1000, whole)
}
