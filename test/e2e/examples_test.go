package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/devservertest"
	"github.com/gpumux/gpumux/test/programtest"
)

// top is the repository's top folder.
func top(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "examples", "README.md"))
	return dir
}

// venv is the folder with the Python that has the packages of examples/requirements.txt.
func venv(t testing.TB) string {
	t.Helper()
	python := os.Getenv("GPUMUX_TEST_PYTHON")
	if python == "" {
		python = filepath.Join(top(t), ".venv", "bin", "python")
	}
	require.FileExists(t, python, "make venv installs it")
	return filepath.Dir(filepath.Dir(python))
}

// example is a copy of one example beside the programs that it uses, with a namespace and
// a worker of its own.
type example struct {
	*shell
	name string
	repo string
}

func newExample(t *testing.T, name string) *example {
	t.Helper()
	s := devservertest.Run(t)
	e := &example{shell: newShell(t), name: name, repo: top(t)}
	e.env = append(e.env, "TEMPORAL_ADDRESS="+s.Address(), "TEMPORAL_NAMESPACE="+devservertest.Namespace(t),
		"XDG_DATA_HOME="+e.path("data"), "PYTHONDONTWRITEBYTECODE=1")
	e.copy("examples/" + name)
	e.link()
	return e
}

// copy takes a folder over, so that what the example writes does not reach the
// repository.
func (e *example) copy(folder string) {
	e.t.Helper()
	require.NoError(e.t, os.CopyFS(e.path(folder), os.DirFS(filepath.Join(e.repo, folder))))
}

// link puts gpumux and Python where the commands look for them.
func (e *example) link() {
	e.t.Helper()
	gpumux := programtest.Binary(e.t)
	require.NoError(e.t, os.MkdirAll(e.path("bin"), 0o755))
	require.NoError(e.t, os.Symlink(gpumux, e.path("bin/gpumux")))
	require.NoError(e.t, os.Symlink(venv(e.t), e.path(".venv")))
}

// sh runs a command line in a folder and returns what it printed to standard output, and
// its exit status.
func (e *example) sh(dir, line string) (string, int) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 10*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", line)
	var stdout, stderr programtest.Screen
	command.Dir, command.Env, command.Stdout, command.Stderr = dir, e.env, &stdout, &stderr
	command.WaitDelay = 10 * time.Second
	err := command.Run()
	e.t.Logf("$ %s\n%s%s", line, &stdout, &stderr)
	if command.ProcessState == nil {
		require.NoError(e.t, err)
	}
	return stdout.String(), command.ProcessState.ExitCode()
}

// build runs a line of the README that makes a program, with the copy's bin in the place
// of the repository's.
func (e *example) build(line string) {
	e.t.Helper()
	require.Contains(e.t, e.readme(), "\n"+line+"\n", "the README has the line")
	_, code := e.sh(e.repo, e.inCopy(line))
	require.Zero(e.t, code, line)
}

func (e *example) inCopy(line string) string {
	line = strings.ReplaceAll(line, ".venv/", e.path(".venv")+"/")
	return regexp.MustCompile(`(^|\s)bin/`).ReplaceAllString(line, "${1}"+e.path("bin")+"/")
}

func (e *example) readme() string {
	e.t.Helper()
	return e.file("examples/" + e.name + "/README.md")
}

// work starts the worker of a file and waits until it serves.
func (e *example) work(file string) {
	e.t.Helper()
	worker := e.begin("worker", "-f", file)
	require.Eventually(e.t, func() bool { return strings.Contains(worker.stderr.String(), `"serving"`) }, time.Minute, 10*time.Millisecond,
		"%s", &worker.stderr)
}

// textWorker offers the functions of examples/python, as `gpumux dev --tasks
// examples/python` does.
func (e *example) textWorker() {
	e.t.Helper()
	e.write("worker.yaml", "pools: [{name: cpu, devices: cpu, slots: 2}]\ntasks: {\"*\": {python_dir: "+
		filepath.Join(e.repo, "examples", "python")+"}}\n")
	e.work("worker.yaml")
}

var (
	consoles = regexp.MustCompile("(?s)```console\n(.*?)```")
	// Which of equal slots was free is not the example's to say.
	anySlot = regexp.MustCompile(`slot cpu/\d`)
)

// check runs the commands of the README's console blocks and compares what they print
// with what the README shows.
func (e *example) check() {
	e.t.Helper()
	blocks := consoles.FindAllStringSubmatch(e.readme(), -1)
	require.NotEmpty(e.t, blocks)
	for _, block := range blocks {
		e.compare(block[1], e.repo, e.inCopy)
	}
}

// compare runs the commands of a console block and compares what they print with what the
// block shows.
func (e *example) compare(block, dir string, change func(string) string) {
	e.t.Helper()
	shown := func(text string) string {
		return strings.TrimSuffix(anySlot.ReplaceAllString(text, "slot cpu/0"), "\n")
	}
	for _, call := range strings.Split("\n"+block, "\n$ ")[1:] {
		line, want, _ := strings.Cut(call, "\n")
		got, _ := e.sh(dir, change(line))
		require.Equal(e.t, shown(want), shown(got), line)
	}
}

func TestLong_ExamplesPrintWhatTheirReadmesShow(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*example){
		"python":   (*example).textWorker,
		"polyglot": (*example).textWorker,
		"service": func(e *example) {
			e.textWorker()
			e.serve()
		},
		"command": func(e *example) {
			e.build("cc -O2 -o bin/pi examples/command/pi.c")
			e.work("examples/command/gpumux.yaml")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newExample(t, name)
			e.env = append(e.env, goEnvironment(t)...)
			start(e)
			e.check()
		})
	}
}

// The example in TypeScript installs the SDK, compiles against our types and runs.
func TestLong_TypeScriptPrintsWhatItsReadmeShows(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		rig.Because(t, rig.Tool, err)
	}
	e := newExample(t, "typescript")
	e.env = append(os.Environ(), e.env...) // npm has its way to the registry there
	e.textWorker()
	inCopy := func(line string) string {
		return strings.ReplaceAll(line, "examples/typescript", e.path("examples/typescript"))
	}
	for _, line := range []string{"npm ci --silent --prefix examples/typescript", "npm run --silent build --prefix examples/typescript"} {
		require.Contains(t, e.readme(), "\n"+line+"\n")
		out, code := e.sh(e.repo, inCopy(line))
		require.Zero(t, code, "%s", out)
	}
	for _, block := range consoles.FindAllStringSubmatch(e.readme(), -1) {
		e.compare(block[1], e.repo, inCopy)
	}
}

// The page for beginners, from its first file to its last result.
func TestStart_DoesWhatThePageShows(t *testing.T) {
	t.Parallel()
	e := &example{shell: newShell(t), repo: top(t)}
	e.link()
	e.env = append(e.env, "PATH="+e.path("bin")+":"+os.Getenv("PATH"))
	page, err := os.ReadFile(filepath.Join(e.repo, "docs", "start.md"))
	require.NoError(t, err)
	steps := regexp.MustCompile("(?s)```(python|console)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, steps, 5)
	for _, step := range steps {
		if step[1] == "console" {
			e.compare(step[2], e.dir, func(line string) string { return line })
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(step[2], "# "), "\n")
		e.write(name, step[2])
	}
}

// newOffline is an example that starts no server, in a folder of its own.
func newOffline(t *testing.T, name string) *example {
	t.Helper()
	t.Parallel()
	e := &example{shell: newShell(t), name: name, repo: top(t)}
	e.copy("examples/" + name)
	e.link()
	return e
}

// checkHere is check in the example's own folder.
func (e *example) checkHere() {
	e.t.Helper()
	blocks := consoles.FindAllStringSubmatch(e.readme(), -1)
	require.NotEmpty(e.t, blocks)
	for _, block := range blocks {
		e.compare(block[1], e.dir, func(line string) string { return line })
	}
}

// Photographs go from files to labels, with gpumux and by hand.
func TestStages_ExamplePrintsWhatItsReadmeShows(t *testing.T) {
	e := newOffline(t, "stages")
	e.env = append(e.env, "PYTHONPATH="+filepath.Join(e.repo, "clients", "python"))
	e.checkHere()
	out, code := e.sh(e.dir, `.venv/bin/python examples/stages/compare.py --ways "gpumux,by hand" --share 0.01 --rounds 1`)
	require.Zero(t, code)
	require.Regexp(t, `\nimages    by hand      50 .*\n(.*\n)+middle    by hand      40 `, out)
}

// goEnvironment lets go build with the caches of the test itself.
func goEnvironment(t testing.TB) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPROXY").Output()
	require.NoError(t, err)
	words := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, words, 3)
	return []string{"GOCACHE=" + words[0], "GOMODCACHE=" + words[1], "GOPROXY=" + words[2], "GOTOOLCHAIN=local"}
}

// serve runs the example service until the test ends.
func (e *example) serve() {
	e.t.Helper()
	_, code := e.sh(e.repo, "go build -o "+e.path("bin/service")+" ./examples/service")
	require.Zero(e.t, code)
	service := exec.Command(e.path("bin/service"))
	var log programtest.Screen
	service.Env, service.Stdout, service.Stderr = e.env, &log, &log
	require.NoError(e.t, service.Start())
	e.t.Cleanup(func() {
		require.NoError(e.t, service.Process.Signal(os.Interrupt))
		require.NoError(e.t, service.Wait(), "%s", &log)
	})
}

// The demo at a fortieth of its size: it reports, and may be given again.
func TestDemo_Reports(t *testing.T) {
	t.Parallel()
	e := &example{shell: newShell(t), name: "digits", repo: top(t)}
	e.copy("examples/digits")
	e.link()
	items := strings.SplitAfterN(e.file("examples/digits/sweep.jsonl"), "\n", 4)
	e.write("examples/digits/sweep.jsonl", strings.Join(items[:3], ""))

	for range 2 {
		out, code := e.sh(e.dir, "examples/digits/demo.sh")
		require.Zero(t, code)
		require.Contains(t, out, "training 3 neural networks")
		require.Regexp(t, `\n3 networks trained on \S.*, 0 failed\n`, out)
		require.Regexp(t, `\n\s+9\d\.\d\d%\s+0\.\d{4}\s+16 `, out, "the best five")
		require.Contains(t, out, "\nresults  .demo/results.jsonl\n")
	}
	for _, line := range e.lines(e.file(".demo/results.jsonl")) {
		var value struct {
			Accuracy, Loss, Seconds float64
			Device                  string
		}
		require.NoError(t, json.Unmarshal(line["value"], &value), "%s", line)
		require.Greater(t, value.Accuracy, 0.9)
		require.Positive(t, value.Loss)
		require.Positive(t, value.Seconds)
		require.NotEmpty(t, value.Device)
	}
}
