package objects

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/names"
)

// child is set in the processes that the tests start to kill or limit.
const child = "GPUMUX_STORE_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(child) {
	case "":
		os.Exit(m.Run())
	case "abandon":
		abandon(os.Args[1])
	case "replace":
		replace(os.Args[1])
	case "full":
		fmt.Println(full(os.Args[1]))
	}
}

func startChild(t *testing.T, what, url string) (*exec.Cmd, *bufio.Reader) {
	cmd := exec.Command(os.Args[0], url)
	cmd.Env = append(os.Environ(), child+"="+what)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewReader(out)
}

func TestWriter_VisibleOnlyWhenClosed(t *testing.T) {
	eachBucket(t, func(t *testing.T, s *Bucket) {
		ctx := t.Context()
		large := bytes.Repeat([]byte("0123456789abcdef"), 5<<18) // more than one piece of an S3 upload
		for _, content := range [][]byte{nil, []byte("small"), large} {
			key := fmt.Sprintf("a/b/%d", len(content))
			w, err := s.Create(ctx, key, Creation{})
			require.NoError(t, err)
			_, err = w.Write(content)
			require.NoError(t, err)
			exists, err := s.Exists(ctx, key)
			require.NoError(t, err)
			require.False(t, exists)
			require.NoError(t, w.Close())
			w.Abort()
			require.True(t, bytes.Equal(content, []byte(get(t, s, key))))
			_, err = w.Write(content)
			require.ErrorIs(t, err, fs.ErrClosed)
			require.ErrorIs(t, w.Close(), fs.ErrClosed)

			again, err := s.Create(ctx, key, Creation{})
			require.NoError(t, err)
			_, err = again.Write([]byte("other"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(content, []byte(get(t, s, key))))
			require.NoError(t, again.Close())
			require.Equal(t, "other", get(t, s, key))
		}
	})
}

func TestWriter_AbortLeavesNothing(t *testing.T) {
	eachBucket(t, func(t *testing.T, s *Bucket) {
		large := bytes.Repeat([]byte("0123456789abcdef"), 5<<18)
		for i, content := range [][]byte{nil, []byte("small"), large} {
			put(t, s, "kept", "kept")
			ctx, cancel := context.WithCancel(t.Context())
			var canceled []*Writer
			for _, key := range []string{"kept", fmt.Sprint("new", i)} {
				aborted, err := s.Create(t.Context(), key, Creation{})
				require.NoError(t, err)
				_, err = aborted.Write(content)
				require.NoError(t, err)
				aborted.Abort()
				aborted.Abort()
				require.ErrorIs(t, aborted.Close(), fs.ErrClosed)

				w, err := s.Create(ctx, key, Creation{})
				require.NoError(t, err)
				_, err = w.Write(content)
				require.NoError(t, err)
				canceled = append(canceled, w)
			}
			cancel()
			for _, w := range canceled {
				require.ErrorIs(t, w.Close(), context.Canceled)
			}
			require.Equal(t, "kept", get(t, s, "kept"))
			exists, err := s.Exists(t.Context(), fmt.Sprint("new", i))
			require.NoError(t, err)
			require.False(t, exists)
		}
		if dir, disk := strings.CutPrefix(s.URL(), "file://"); disk {
			temporaries, err := os.ReadDir(filepath.Join(dir, names.Scratch))
			require.NoError(t, err)
			require.Empty(t, temporaries)
		}
	})
}

func TestWriter_LeavesNoOtherFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, "file://"+dir)
	put(t, s, "a/b", "x")
	put(t, s, "a/b", "y")
	var files []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	require.Equal(t, []string{filepath.Join(dir, "a", "b")}, files)
}

func TestWriter_KilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	cmd, out := startChild(t, "abandon", "file://"+dir)
	_, err := out.ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()

	s := open(t, "file://"+dir)
	exists, err := s.Exists(t.Context(), "a/b")
	require.NoError(t, err)
	require.False(t, exists)
	left, err := filepath.Glob(filepath.Join(dir, names.Scratch, "*"))
	require.NoError(t, err)
	require.Len(t, left, 1, "a fresh temporary may be another process's")
	old := time.Now().Add(-24*time.Hour - time.Minute)
	require.NoError(t, os.Chtimes(left[0], old, old))
	open(t, "file://"+dir)
	require.NoFileExists(t, left[0])
}

func abandon(url string) {
	s, err := Open(context.Background(), url)
	if err != nil {
		panic(err)
	}
	w, err := s.Create(context.Background(), "a/b", Creation{})
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		if _, err := w.Write(make([]byte, 1<<10)); err != nil {
			panic(err)
		}
		if i == 100 {
			fmt.Println("writing")
			io.Copy(io.Discard, os.Stdin) // waits for the kill without filling the disk
			select {}
		}
	}
}

func TestWriter_KilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	for range 10 {
		cmd, out := startChild(t, "replace", "file://"+dir)
		for range 1 + rand.IntN(20) {
			_, err := out.ReadString('\n')
			require.NoError(t, err)
		}
		require.NoError(t, cmd.Process.Kill())
		cmd.Wait()
		s := open(t, "file://"+dir)
		content := get(t, s, "a/b")
		require.Len(t, content, 1<<18)
		require.Equal(t, bytes.Count([]byte(content), []byte(content[:1])), len(content), "a mix of two writes")
	}
}

func replace(url string) {
	s, err := Open(context.Background(), url)
	if err != nil {
		panic(err)
	}
	for i := byte(0); ; i++ {
		w, err := s.Create(context.Background(), "a/b", Creation{})
		if err != nil {
			panic(err)
		}
		for range 1 << 8 {
			w.Write(bytes.Repeat([]byte{i}, 1<<10))
		}
		if err := w.Close(); err != nil {
			panic(err)
		}
		fmt.Println(i)
	}
}

func TestWriter_NoSpaceLeft(t *testing.T) {
	dir := t.TempDir()
	s := open(t, "file://"+dir)
	put(t, s, "kept", "kept")
	cmd, out := startChild(t, "full", "file://"+dir)
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	require.Contains(t, string(text), "write file://"+dir+"/kept: write "+dir+"/.tmp/")
	require.Contains(t, string(text), "file too large")
	require.Equal(t, "kept", get(t, s, "kept"))
	left, err := filepath.Glob(filepath.Join(dir, names.Scratch, "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// full writes an object under a limit on the size of files. It returns the error of
// Close.
func full(url string) error {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 1 << 16, Max: 1 << 16}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		panic(err)
	}
	s, err := Open(context.Background(), url)
	if err != nil {
		panic(err)
	}
	w, err := s.Create(context.Background(), "kept", Creation{})
	if err != nil {
		panic(err)
	}
	for range 100 {
		w.Write(make([]byte, 1<<10)) // Close must return this error too
	}
	return w.Close()
}
