package devserver

import (
	"bufio"
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
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
	finish(t, start(t, Options{Data: data}), "w")
}

// After Stop the database is one file: copied alone, it holds everything.
func TestData_OneFileAfterStop(t *testing.T) {
	t.Parallel()
	data, other := t.TempDir(), t.TempDir()
	s := start(t, Options{Data: data})
	begin(t, s.Address(), "w")
	require.NoError(t, s.Stop())
	file, err := os.ReadFile(filepath.Join(data, databaseName))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(other, databaseName), file, 0o600))
	finish(t, start(t, Options{Data: other}), "w")
}

// A folder that was removed and made again is new, even though the process has had it
// open.
func TestData_FolderReplaced(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	s := start(t, Options{Data: data})
	begin(t, s.Address(), "w")
	require.NoError(t, s.Stop())
	require.NoError(t, os.RemoveAll(data))

	s = start(t, Options{Data: data})
	_, err := dial(t, s.Address()).DescribeWorkflowExecution(t.Context(), "w", "")
	require.ErrorContains(t, err, "not found")
	begin(t, s.Address(), "new")
	require.NoError(t, s.Stop())
	finish(t, start(t, Options{Data: data}), "new")
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

	_, err = Start(t.Context(), anyPorts(Options{Data: data}))
	require.ErrorContains(t, err, "in use by another server (pid "+strconv.Itoa(child.Process.Pid)+")")
	require.ErrorContains(t, err, "give another folder")

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

func TestData_InUseInThisProcess(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := start(t, Options{Data: data})
	_, err := Start(t.Context(), anyPorts(Options{Data: data}))
	require.ErrorContains(t, err, "pid "+strconv.Itoa(os.Getpid()))
	begin(t, s.Address(), "w")
	finish(t, s, "w")
}

func TestData_HalfCreated(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	half := filepath.Join(data, databaseName+unfinished)
	db, err := openSQLite("file:" + uriPath(half) + "?mode=rwc")
	require.NoError(t, err)
	_, err = db.Exec("CREATE TABLE namespaces(id TEXT)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.NoError(t, os.WriteFile(half+"-journal", []byte("of the killed one"), 0o600))

	s := start(t, Options{Data: data})
	begin(t, s.Address(), "w")
	finish(t, s, "w")
	require.NoFileExists(t, half)
}

func TestData_OtherSchema(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	require.NoError(t, start(t, Options{Data: data}).Stop())
	path := filepath.Join(data, databaseName)
	alter(t, path, "UPDATE gpumux_origin SET server = '1.99.0', schema = 'another'")

	_, err := Start(t.Context(), anyPorts(Options{Data: data}))
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "made for Temporal server 1.99.0")
	require.ErrorContains(t, err, "server "+headers.ServerVersion)

	alter(t, path, "DROP TABLE gpumux_origin")
	_, err = Start(t.Context(), anyPorts(Options{Data: data}))
	require.ErrorContains(t, err, "not made by gpumux")
}

func TestData_NoDatabase(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	path := filepath.Join(data, databaseName)
	text := []byte(strings.Repeat("a text that somebody keeps here\n", 1000))
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_, err := Start(t.Context(), anyPorts(Options{Data: data}))
	require.ErrorContains(t, err, "not a database")
	require.ErrorContains(t, err, "give another folder")
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, kept)
}

func TestFolder_NotAFolder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Start(t.Context(), anyPorts(Options{Data: filepath.Join(file, "data")}))
	require.ErrorContains(t, err, "create data folder")
	require.ErrorContains(t, err, "give another folder")
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
	_, err := openFolder(data)
	require.ErrorContains(t, err, "not writable")
	require.ErrorContains(t, err, "give another folder")
}

func alter(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open(driverName, path)
	require.NoError(t, err)
	_, err = db.Exec(statement)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
