// Package examples_test holds that the examples and the pages that lead to them are
// whole: commands that gpumux understands, links that lead somewhere, and code in the
// pages that is the code in the files. What the examples print is compared where there is
// a server, in test/e2e.
package examples_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/cli"
	"github.com/gpumux/gpumux/workers/config"
)

// pages are what a person reads on the way to the examples.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("*/README.md")
	require.NoError(t, err)
	require.Len(t, names, 13)
	names = append(names, "README.md", "../deploy/README.md", "../docs/llm.md", "../docs/stages.md", "../docs/start.md", "../docs/tasks.md", "../docs/workflows.md")
	all := map[string]string{}
	for _, name := range names {
		all[name] = read(t, name)
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}

var (
	blocks  = regexp.MustCompile("(?s)```(sh|console)\n(.*?)```")
	command = regexp.MustCompile(`(?:^|[\s|])(?:bin/)?gpumux ((?:map|llm|dev|worker|ls|show|wait|results|pause|resume|cancel|retry|gpus|doctor)\b[^|;<>\n]*)`)
	link    = regexp.MustCompile(`\]\(([^)#:, ]+)(#[^)]*)?\)`)
	quoted  = regexp.MustCompile(`'[^']*'|\S+`)
)

// Every gpumux command in the pages is one that the command line takes, flags included.
func TestPages_CommandsAreUnderstood(t *testing.T) {
	found, all := 0, pages(t)
	t.Chdir("..") // commands are given from the top folder
	for name, page := range all {
		for _, block := range blocks.FindAllStringSubmatch(page, -1) {
			for _, match := range command.FindAllStringSubmatch(block[2], -1) {
				line, _, _ := strings.Cut(match[1], "  #")
				words := quoted.FindAllString(strings.TrimSuffix(strings.TrimSpace(line), " 2"), -1) // of 2>&1
				for i, word := range words {
					words[i] = strings.Trim(word, "'")
				}
				words = slices.Insert(words, 1, "--help")
				var out bytes.Buffer
				code := cli.Main(cli.Options{Args: words, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out})
				require.Zero(t, code, "%s: gpumux %s\n%s", name, match[1], out.String())
				found++
			}
		}
	}
	require.Greater(t, found, 20)
}

func TestPages_LinksLeadSomewhere(t *testing.T) {
	for name, page := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(page, -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(name), match[1]))
			require.NoError(t, err, name)
		}
	}
}

// The program in the page on workflows is the one that runs.
func TestPages_ShowTheCodeThatRuns(t *testing.T) {
	_, function, ok := strings.Cut(read(t, "service/languages.go"), "\n// Languages ")
	require.True(t, ok)
	require.Contains(t, read(t, "../docs/workflows.md"), strings.TrimSpace(function))
}

func TestWorkerFile_Loads(t *testing.T) {
	config, err := config.Load("command/gpumux.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, config.Tasks)
}

// sweep.jsonl is what grid.py prints.
func TestDigits_SweepIsTheGrid(t *testing.T) {
	out, err := exec.Command("python3", "digits/grid.py").Output()
	require.NoError(t, err)
	require.Equal(t, read(t, "digits/sweep.jsonl"), string(out))
	require.Equal(t, 120, bytes.Count(out, []byte{'\n'}))
}

// What is installed is the same on every machine.
func TestRequirements_ArePinned(t *testing.T) {
	for line := range strings.Lines(read(t, "requirements.txt")) {
		if !strings.HasPrefix(line, "#") {
			require.Regexp(t, `^[a-z]+==\d+(\.\d+)+(; python_version [<>=]+ "3\.\d+")?\n$`, line)
		}
	}
}

// A service that maps must not pay for what only workers need.
func TestService_ImportsStayLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./service").Output()
	require.NoError(t, err)
	for _, heavy := range []string{"go-nvml", "go.uber.org/zap", "gocloud.dev", "spf13/cobra", "gpumux/workers", "gpumux/store", "gpumux/gpu\n"} {
		require.NotContains(t, string(out), heavy)
	}
}
