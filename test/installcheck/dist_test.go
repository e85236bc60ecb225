package installcheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

// one is the path of the only file of dist/ that a pattern fits. `make dist` makes them.
func one(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("../../dist", pattern))
	require.NoError(t, err)
	require.Len(t, found, 1, "dist/%s", pattern)
	path, err := filepath.Abs(found[0])
	require.NoError(t, err)
	return path
}

// here is this machine in the names of files.
const here = runtime.GOOS + "-" + runtime.GOARCH

func TestDist_Checksums(t *testing.T) {
	sums := one(t, "SHA256SUMS")
	out := run(t, filepath.Dir(sums), nil, "sha256sum", "-c", "SHA256SUMS")
	for _, system := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"} {
		require.Regexp(t, `gpumux-\S+-`+system+`\.tar\.gz: OK`, out)
		require.Regexp(t, `gpumux-\S+-`+system+`\.cdx\.json: OK`, out)
	}
	require.Equal(t, 4, strings.Count(out, ".deb: OK")+strings.Count(out, ".rpm: OK"))
}

func TestDist_Archive(t *testing.T) {
	archive, into := one(t, "gpumux-*-"+here+".tar.gz"), t.TempDir()
	run(t, into, nil, "tar", "-xzf", archive)
	folder := filepath.Join(into, strings.TrimSuffix(filepath.Base(archive), ".tar.gz"))
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(folder), "gpumux-"), "-"+here)
	require.Contains(t, run(t, into, nil, filepath.Join(folder, "gpumux"), "--version"), "gpumux "+version+" (")
	maps(t, filepath.Join(folder, "gpumux"))
	for _, name := range []string{"LICENSE", "README.md", "THIRD-PARTY-LICENSES", "completions/_gpumux", "completions/gpumux.fish",
		"systemd/gpumux-worker.service", "systemd/worker-gpu.yaml"} {
		require.FileExists(t, filepath.Join(folder, name))
	}
	for _, script := range []string{"completions/gpumux.bash", "slurm/map.sh", "slurm/worker.sh", "slurm/workers.sh"} {
		run(t, folder, nil, "bash", "-n", script)
	}
}

// The package goes into a folder, not into the system: its scripts change nothing.
func TestDist_Debian(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		rig.Because(t, rig.Tool, "dpkg")
	}
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644))
	dpkg := func(args ...string) {
		run(t, root, nil, "dpkg", append([]string{"--root=" + root, "--force-not-root", "--force-script-chrootless", "--force-depends", "--log=/dev/null"}, args...)...)
	}
	dpkg("-i", one(t, "gpumux_*_"+runtime.GOARCH+".deb"))
	maps(t, filepath.Join(root, "usr/bin/gpumux"))
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/gpumux-worker.service"))
	require.NoError(t, err)
	file := regexp.MustCompile(`(?m)^ExecStart=gpumux worker -f (\S+)$`).FindSubmatch(unit)
	require.NotNil(t, file)
	require.FileExists(t, filepath.Join(root, string(file[1])))
	key, err := os.Stat(filepath.Join(root, "etc/gpumux/environment"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), key.Mode().Perm(), "it may hold a key")
	run(t, root, nil, "bash", "-n", "usr/share/gpumux/slurm/map.sh")
	dpkg("--purge", "gpumux")
	left := run(t, root, nil, "find", ".", "-path", "./var", "-prune", "-o", "-type", "f", "-print")
	require.Empty(t, left)
}

func TestDist_RPM(t *testing.T) {
	if _, err := exec.LookPath("rpm"); err != nil {
		rig.Because(t, rig.Tool, "rpm")
	}
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	root, file := t.TempDir(), one(t, "gpumux-*."+arch+".rpm")
	rpm := func(args ...string) string {
		return run(t, root, nil, "rpm", append([]string{"--root", root}, args...)...)
	}
	rpm("--initdb")
	rpm("-i", "--nodeps", "--noscripts", file)
	maps(t, filepath.Join(root, "usr/bin/gpumux"))
	require.Contains(t, rpm("-q", "--configfiles", "gpumux"), "/etc/gpumux/worker.yaml")
	require.Contains(t, rpm("-q", "--scripts", "gpumux"), "systemctl daemon-reload")
	require.Contains(t, rpm("-q", "--requires", "gpumux"), "glibc >= 2.34")
	rpm("-e", "--noscripts", "gpumux")
	require.NoFileExists(t, filepath.Join(root, "usr/bin/gpumux"))
}

func TestDist_Cask(t *testing.T) {
	if _, err := exec.LookPath("ruby"); err != nil {
		rig.Because(t, rig.Tool, "ruby")
	}
	cask := one(t, "homebrew/Casks/gpumux.rb")
	run(t, "/", nil, "ruby", "-c", cask)
	text, err := os.ReadFile(cask)
	require.NoError(t, err)
	sums, err := os.ReadFile(one(t, "SHA256SUMS"))
	require.NoError(t, err)
	named := regexp.MustCompile(`sha256 "([0-9a-f]{64})"`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, named, 4)
	for _, sum := range named {
		require.Contains(t, string(sums), sum[1])
	}
}
