package devserver

import (
	"bufio"
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/headers"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
)

// finish ends a waiting workflow at a server that did not start it.
func finish(t *testing.T, s *Server, id string) {
	t.Helper()
	c := dial(t, s.Address())
	work(t, c)
	require.NoError(t, c.SignalWorkflow(t.Context(), id, "", "go", "still here"))
	var text string
	require.NoError(t, c.GetWorkflow(t.Context(), id, "").Get(t.Context(), &text))
	require.Equal(t, "still here", text)
}

func begin(t *testing.T, address, id string) {
	t.Helper()
	_, err := dial(t, address).ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: gpumux.Queue}, signaled)
	require.NoError(t, err)
}

func TestData_SurvivesStop(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "a b?c#d%20e:ü", "data")
	s := start(t, Options{Data: data})
	begin(t, s.Address(), "w")
	require.NoError(t, s.Stop())
	finish(t, start(t, Options{Data: again(t, data)}), "w")
}

func TestData_SurvivesKill(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	child := childCommand(t, data)
	stdin, err := child.StdinPipe() // its end would be a clean stop
	require.NoError(t, err)
	defer stdin.Close()
	var stderr bytes.Buffer
	child.Stderr = &stderr
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	address, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, "%s", &stderr)
	begin(t, strings.TrimSpace(address), "w")

	require.NoError(t, child.Process.Kill())
	require.ErrorContains(t, child.Wait(), "killed")
	require.Empty(t, stderr.String())
	finish(t, start(t, Options{Data: data}), "w")
}

// A whole life of a server in a process of its own leaves nothing on its terminal.
func TestChild_PrintsNothing(t *testing.T) {
	t.Parallel()
	child := childCommand(t, t.TempDir()) // without standard input it stops as soon as it is ready
	output, err := child.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Regexp(t, `\A127\.0\.0\.1:\d+\n\z`, string(output))
}

// A kill in the middle of the creation leaves an empty file, which SQLite restores from
// its journal.
func TestData_HalfCreated(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(data, databaseName), nil, 0o644))
	s := start(t, Options{Data: data})
	begin(t, s.Address(), "w")
	finish(t, s, "w")
}

func TestData_OtherSchema(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	require.NoError(t, start(t, Options{Data: data}).Stop())
	data = again(t, data)
	path := filepath.Join(data, databaseName)
	alter(t, path, "UPDATE gpumux_origin SET server = '1.99.0', schema = 'another'")

	_, err := Start(t.Context(), Options{Data: data})
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "made for Temporal server 1.99.0")
	require.ErrorContains(t, err, "server "+headers.ServerVersion)

	alter(t, path, "DROP TABLE gpumux_origin")
	_, err = Start(t.Context(), Options{Data: data})
	require.ErrorContains(t, err, "not made by gpumux")
}

func TestData_NoDatabase(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	path := filepath.Join(data, databaseName)
	text := []byte(strings.Repeat("a text that somebody keeps here\n", 1000))
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_, err := Start(t.Context(), Options{Data: data})
	require.ErrorContains(t, err, "not a database")
	require.ErrorContains(t, err, "give another folder")
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, kept)
}

func TestFolder_NotWritable(t *testing.T) {
	data := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(data), 0o755))
	require.NoError(t, os.Chmod(data, 0o555))
	if os.Getuid() == 0 {
		// Root writes anywhere: become somebody else for this thread's dealings with files.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.NoError(t, unix.Setfsuid(65534))
		defer unix.Setfsuid(0)
	}
	_, err := openFile(t.Context(), data)
	require.ErrorContains(t, err, "make the folder writable")
	require.ErrorContains(t, err, "give another folder")
}

// again is a copy of a data folder: the server's pool keeps what it has opened until the
// process ends.
func again(t *testing.T, data string) string {
	t.Helper()
	copied := data + " again"
	require.NoError(t, os.CopyFS(copied, os.DirFS(data)))
	return copied
}

func alter(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open(driverName, path)
	require.NoError(t, err)
	_, err = db.Exec(statement)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
