package gpucheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/deploy/devserver/programtest"
	"github.com/gpumux/gpumux/gpu/gputest"
	"github.com/gpumux/gpumux/internal/skip"
)

// The tests of GPUs pass on a machine that behaves as they expect; whether GPUs do only they themselves can tell.
func TestRehearsal(t *testing.T) {
	if rehearsed() {
		skip.Because(t, skip.StandIn, "this is it")
	}
	path, err := programtest.Binary()
	require.NoError(t, err)
	m := gputest.Prepare(t, gputest.State{GPUs: []gputest.GPU{{Name: "NVIDIA H200", Total: 139 * gib, Free: 139 * gib}}})
	imitation, err := filepath.Abs("testdata/imitation")
	require.NoError(t, err)

	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestGPU_", "-test.v", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), gputest.StateVariable+"="+m.File, "GPUMUX_BINARY="+path, "PYTHONPATH="+imitation,
		skip.Strict+"=", "LD_LIBRARY_PATH="+m.Folder, "PATH="+m.Folder+":"+os.Getenv("PATH"),
		"CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000000")
	said, err := cmd.CombinedOutput()
	text := string(said)
	require.NoError(t, err, "%s", text)
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "--- ") || strings.Contains(line, "figure: ") {
			t.Log(line)
		}
	}
	require.Equal(t, 4, strings.Count(text, "--- SKIP"), "only the comparisons with nvidia-smi and the packing of networks are left out:\n%s", text)
	rehearseFacts(t, cmd.Env)
}

// What facts.py asks of the driver and of frameworks, the stand-ins can answer.
func rehearseFacts(t *testing.T, env []string) {
	file := filepath.Join(t.TempDir(), "facts.json")
	cmd := exec.Command(python(), "-W", "error", "facts.py", file)
	cmd.Env = env
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.NotContains(t, string(said), "Error", "no part failed")
	code := "import facts, json, sys; print('\\n'.join(facts.told(json.load(open(sys.argv[1])))))"
	told, err := exec.Command(python(), "-c", code, file).CombinedOutput()
	require.NoError(t, err, "%s", told)
	require.Regexp(t, `(?m)^NVIDIA H200, driver \S+; NVML begins in \S+ ms$`, string(told))
	require.Regexp(t, `(?m)^a bare context takes 528 MiB of the device and \d+ ms; the driver lists it with 528 MiB$`, string(told))
	require.Regexp(t, `(?m)^three more contexts side by side take \d+ ms; a list of all takes \S+ ms$`, string(told))
	require.Regexp(t, `(?m)^after a kill: .*ended \d+ ms`, string(told))
	require.Regexp(t, `(?m)^torch 2.0\+imitation: import \S+ s, reaches \S+ s, started \S+ s \(528 MiB\)$`, string(told))
	t.Logf("%s", told)
}
