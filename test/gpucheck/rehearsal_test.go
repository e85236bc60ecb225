package gpucheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// The tests of GPUs pass on a machine that behaves as they expect; whether GPUs do only
// they themselves can tell.
func TestLong_Rehearsal(t *testing.T) {
	if rehearsed() {
		rig.Because(t, rig.StandIn, "this is it")
	}
	path := programtest.Binary(t)
	imitation, err := filepath.Abs("testdata/imitation")
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	// rehearse runs tests on a machine whose device has such a UUID, and counts those that
	// are left out.
	rehearse := func(tests, uuid string, gpus gputest.GPU) (skipped int, env []string) {
		m := gputest.Prepare(t, gputest.State{GPUs: []gputest.GPU{gpus}})
		skip := "-test.skip=^" + namespaced + "$"
		if strings.Contains(tests, namespaced) {
			skip = "-test.skip="
		}
		cmd := exec.Command(self, "-test.run="+tests, skip, "-test.v", "-test.timeout=10m")
		cmd.Env = append(os.Environ(), gputest.StateVariable+"="+m.File, "GPUMUX_BINARY="+path, "PYTHONPATH="+imitation,
			rig.Strict+"=", "LD_LIBRARY_PATH="+m.Folder, "PATH="+m.Folder+":"+os.Getenv("PATH"), "CUDA_VISIBLE_DEVICES="+uuid)
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", output)
		for line := range strings.Lines(string(output)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "--- ") || strings.Contains(line, "figure: ") {
				t.Log(line)
			}
		}
		return strings.Count(string(output), "--- SKIP"), cmd.Env
	}
	rehearse("^"+namespaced+"$", "GPU-00000000-0000-0000-0000-000000000000", gputest.GPU{})
	skipped, env := rehearse("^TestGPU_", "GPU-00000000-0000-0000-0000-000000000000",
		gputest.GPU{Name: "NVIDIA H200", Total: 139 * gib, Free: 139 * gib, Utilization: 90, Milliwatts: 300_000})
	require.Equal(t, 5, skipped, "only the comparisons with nvidia-smi, the packing of networks and MIG are left out")
	rehearseFacts(t, env)
	instances := []gputest.Instance{{Total: 20 * gib, Free: 20 * gib}, {Number: 1, Total: 20 * gib, Free: 20 * gib}}
	skipped, _ = rehearse("^TestGPU_MIG$", "MIG-00000000-0000-0000-0000-000000000000", gputest.GPU{Instances: instances})
	require.Zero(t, skipped)
}

// namespaced needs a machine of its own: the stand-ins would take the process numbers of
// its namespace for the host's.
const namespaced = "TestGPU_ProcessNumbersOfItsOwn"

// What facts.py asks of the driver and of frameworks, the stand-ins can answer.
func rehearseFacts(t *testing.T, env []string) {
	file := filepath.Join(t.TempDir(), "facts.json")
	cmd := exec.Command(python(), "-W", "error", "facts.py", file)
	cmd.Env = env
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.NotContains(t, string(output), "Error", "no part failed")
	code := "import facts, json, sys; print('\\n'.join(facts.told(json.load(open(sys.argv[1])))))"
	reported, err := exec.Command(python(), "-c", code, file).CombinedOutput()
	require.NoError(t, err, "%s", reported)
	require.Regexp(t, `(?m)^NVIDIA H200, driver \S+; persistence mode unknown$`, string(reported))
	require.Regexp(t, `(?m)^NVML begins in \S+ ms and keeps open \[\]$`, string(reported))
	require.Regexp(t, `(?m)^a bare context takes 528 MiB of the device and \d+ ms, the one before it \d+ ms; the driver lists it with 528 MiB$`,
		string(reported))
	require.Regexp(t, `(?m)^three more contexts side by side take \d+ ms; a list of all takes \S+ ms$`, string(reported))
	require.Regexp(t, `(?m)^after a kill: .*ended \d+ ms`, string(reported))
	require.Regexp(t, `(?m)^torch 2.0\+imitation: import \S+ s, reaches \S+ s, started \S+ s \(528 MiB\)$`, string(reported))
	t.Logf("%s", reported)
}
