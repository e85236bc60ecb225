package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/text"
)

// twoLines are results to write.
func twoLines() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		_ = yield([]byte(`{"index":0,"value":1}`), nil) && yield([]byte(`{"index":1,"fault":{}}`), nil)
	}
}

const twoWritten = "{\"index\":0,\"value\":1}\n{\"index\":1,\"fault\":{}}\n"

// deliverTo checks and writes as a command does.
func deliverTo(path string) error {
	o, err := chooseOutput(path, "", nil, false, false)
	if err == nil {
		_, err = o.write(context.Background(), twoLines())
	}
	return err
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestOutput_DevicesAndPipesStay(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Symlink("/dev/full", "full"))
	require.ErrorIs(t, deliverTo("full"), syscall.ENOSPC)
	require.NoError(t, deliverTo("/dev/null"))
	for _, path := range []string{"/dev/null", "/dev/full"} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&fs.ModeCharDevice, "%s is no device any more", path)
	}

	require.NoError(t, unix.Mkfifo("pipe", 0o600))
	read := make(chan string)
	go func() {
		text, err := os.ReadFile("pipe")
		if err != nil {
			text = []byte(err.Error())
		}
		read <- string(text)
	}()
	require.NoError(t, deliverTo("pipe"))
	require.Equal(t, twoWritten, <-read)
	info, err := os.Lstat("pipe")
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&fs.ModeNamedPipe)
	left, err := filepath.Glob(".gpumux-*")
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestOutput_LinksAreFollowed(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("elsewhere", 0o755))
	require.NoError(t, os.Symlink("elsewhere", "folder"))
	require.NoError(t, os.Symlink("../second", "elsewhere/first")) // through folder it still leads here
	require.NoError(t, os.Symlink("elsewhere/file", "second"))
	write(t, "elsewhere/file", "")
	for range 2 {
		require.NoError(t, deliverTo("folder/first"))
		require.Equal(t, twoWritten, readAll(t, "elsewhere/file"))
		for _, link := range []string{"elsewhere/first", "second"} {
			_, err := os.Readlink(link)
			require.NoError(t, err, "%s is no link any more", link)
		}
	}
}

func TestOutput_ModeFollowsUmaskAndTheFileThatIsThere(t *testing.T) {
	t.Chdir(t.TempDir())
	defer unix.Umask(unix.Umask(0o027))
	require.NoError(t, deliverTo("new"))
	require.NoError(t, os.WriteFile("old", nil, 0o600))
	require.NoError(t, deliverTo("old"))
	for path, want := range map[string]fs.FileMode{"new": 0o640, "old": 0o600} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, want, info.Mode().Perm(), path)
	}
}

func TestOutput_FailedWriteLeavesTheOldFile(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "r.jsonl", "old\n")
	broken := errors.New("the store is away")
	o, err := chooseOutput("r.jsonl", "", nil, false, false)
	require.NoError(t, err)
	_, err = o.write(context.Background(), func(yield func([]byte, error) bool) { yield(nil, broken) })
	require.ErrorIs(t, err, broken)
	require.Equal(t, "old\n", readAll(t, "r.jsonl"))
	names, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, names, 1)
}

func TestOutput_BlockedStreamEndsWithTheContext(t *testing.T) {
	reader, writer := io.Pipe() // nobody reads
	defer reader.Close()
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(context.Background())
	o, err := chooseOutput("-", "", writer, false, false)
	require.NoError(t, err)
	_, err = o.write(ctx, func(yield func([]byte, error) bool) {
		if yield([]byte("line"), nil) {
			cancel(interrupted)
			yield(nil, nil) // has it written out
		}
	})
	require.ErrorIs(t, err, interrupted)
}

// What is at hand when a signal comes is still written, so that lines stay whole.
func TestOutput_LastWriteOutlivesTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out bytes.Buffer
	o, err := chooseOutput("-", "", &out, false, false)
	require.NoError(t, err)
	_, err = o.write(ctx, func(yield func([]byte, error) bool) {
		_ = yield([]byte("line"), nil) && func() bool { cancel(); return yield(nil, nil) }() && yield([]byte("late"), nil)
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "line\n", out.String())
}

// People and other programs get "NaN", as docs/tasks.md says; gpumux's clients what they
// read the number from.
func TestOutput_NumbersThatJSONLacks(t *testing.T) {
	t.Chdir(t.TempDir())
	line := fmt.Sprintf(`{"index":0,"value":[%s,{"a":%s},"NaN"],"item":%s}`, text.NaN, text.MinusInfinity, text.Infinity)
	for _, c := range []struct {
		filter
		want string
	}{
		{filter{}, `{"index":0,"value":["NaN",{"a":"-Infinity"},"NaN"],"item":"Infinity"}`},
		{filter{values: true}, `["NaN",{"a":"-Infinity"},"NaN"]`},
		{filter{exact: true}, line},
	} {
		o, err := chooseOutput("r.jsonl", "", nil, false, false)
		require.NoError(t, err)
		o.filter = c.filter
		_, err = o.write(t.Context(), func(yield func([]byte, error) bool) { yield([]byte(line), nil) })
		require.NoError(t, err)
		require.Equal(t, c.want+"\n", readAll(t, "r.jsonl"))
	}
}

// What a line is of is told from its beginning, whatever the value holds.
func TestOutput_FailedAndValues(t *testing.T) {
	lines := []string{`{"index":123456789012,"fault":{"kind":"crash","message":"gone"}}`, `{"index":0,"value":{"fault":1}}`, `{"index":0,"value":"a,\"fault\""}`,
		`{"index":3,"value":null}`}
	for _, c := range []struct {
		filter
		want []string
	}{
		{filter{}, lines},
		{filter{failed: true}, lines[:1]},
		{filter{values: true}, []string{"null", `{"fault":1}`, `"a,\"fault\""`, "null"}},
	} {
		var out bytes.Buffer
		o, err := chooseOutput("-", "", &out, false, false)
		require.NoError(t, err)
		o.filter = c.filter
		causes, err := o.write(t.Context(), func(yield func([]byte, error) bool) {
			for _, line := range lines {
				if !yield([]byte(line), nil) {
					return
				}
			}
		})
		require.NoError(t, err)
		require.Equal(t, strings.Join(c.want, "\n")+"\n", out.String())
		require.Len(t, causes.Sorted(), 1)
		require.EqualValues(t, 123456789012, causes.Sorted()[0].Example.Index)
	}
}

// The end of who reads is noticed without a write, behind a pipe and behind a socket,
// which some programs give in its place.
func TestAbandoned(t *testing.T) {
	pipe := make([]int, 2)
	require.NoError(t, unix.Pipe(pipe))
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	for _, ends := range [][]int{pipe, pair[:]} {
		reader, writer := os.NewFile(uintptr(ends[0]), "reader"), os.NewFile(uintptr(ends[1]), "writer")
		defer writer.Close()
		ctx, stop := context.WithCancel(t.Context())
		gone := make(chan bool)
		go func() { gone <- abandoned(ctx, writer) }()
		stop()
		require.False(t, <-gone)
		go func() { gone <- abandoned(t.Context(), writer) }()
		require.NoError(t, reader.Close())
		require.True(t, <-gone)
	}
}
