package cli

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func edition(t *testing.T, task string, command ...string) string {
	t.Helper()
	local, err := parseLocalTask(task, command, localFlags{}, "")
	require.NoError(t, err)
	return local.edition
}

// A command is written in more files than its first word: the script of an interpreter is its second, a configuration a later one.
func TestEdition_CommandIsOfEveryFileThatItNames(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"sim.py": "one", "conf.yaml": "one", "run.sh": "one", "other": "one"} {
		write(t, name, text)
	}
	for command, files := range map[string][]string{"python3": {"sim.py", "conf.yaml"}, "./run.sh": {"run.sh", "sim.py", "conf.yaml"}} {
		words := []string{command, "-u", "sim.py", "--config", "conf.yaml"}
		before := edition(t, "", words...)
		require.Len(t, before, 6)
		write(t, "other", "two")
		require.Equal(t, before, edition(t, "", words...), "a file that the command does not name")
		for _, name := range files {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			write(t, name, "two")
			require.NotEqual(t, before, edition(t, "", words...), "%s of %v", name, words)
			write(t, name, string(text))
		}
		require.Equal(t, before, edition(t, "", words...))
	}
	require.Empty(t, edition(t, "", "sh", "-c", "wc -w"), "nothing but programs of the system")
}

func TestEdition_TextMovedToTheNextFileIsAChange(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "a", "onetwo")
	write(t, "b", "three")
	before := edition(t, "", "cat", "a", "b")
	write(t, "a", "one")
	write(t, "b", "twothree")
	require.NotEqual(t, before, edition(t, "", "cat", "a", "b"))
}

// A pipe as an argument, such as the shell's <(…), is neither read nor waited for.
func TestEdition_PipeIsNoFile(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, syscall.Mkfifo("pipe", 0o600))
	require.Empty(t, edition(t, "", "cat", "pipe"))
}

// A large file counts by its size and time, so that it need not be read: the file here is one hole.
func TestEdition_LargeFile(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "model", "")
	require.NoError(t, os.Truncate("model", wholeFile+1))
	at := time.Unix(1_700_000_000, 0)
	require.NoError(t, os.Chtimes("model", at, at))
	before := edition(t, "", "cat", "model")
	require.Len(t, before, 6)
	file, err := os.OpenFile("model", os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt([]byte("x"), 5)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.NotEqual(t, before, edition(t, "", "cat", "model"), "written to since")
	require.NoError(t, os.Chtimes("model", at, at))
	require.Equal(t, before, edition(t, "", "cat", "model"))
}
