package gpu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// files makes a host out of the kernel files of a test.
func files(t *testing.T, list map[string]string) host {
	t.Helper()
	root := t.TempDir()
	for name, text := range list {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return host{root: root}
}

const meminfo = "MemTotal:       1000 kB\nMemFree:         300 kB\nMemAvailable:    600 kB\n"

func TestHost_Memory(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  Memory
	}{
		"NoCgroup": {nil, Memory{Total: 1000, Free: 600, Used: 400}},
		"NoLimit": {map[string]string{
			"proc/self/cgroup":             "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n",
		}, Memory{Total: 1000, Free: 600, Used: 400}},
		"LimitOfAParent": {map[string]string{
			"proc/self/cgroup":           "1:name=systemd:/x\n0::/a/b\n",
			"sys/fs/cgroup/a/memory.max": "409600\n", "sys/fs/cgroup/a/memory.current": "307200\n",
			"sys/fs/cgroup/a/memory.stat":  "anon 1\ninactive_file 102400\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n",
		}, Memory{Total: 400, Free: 200, Used: 200}},
		"LimitAboveTheHost": {map[string]string{
			"proc/self/cgroup":         "0::/\n",
			"sys/fs/cgroup/memory.max": "99999999\n", "sys/fs/cgroup/memory.current": "1\n",
		}, Memory{Total: 1000, Free: 600, Used: 400}},
		"OverTheLimit": {map[string]string{
			"proc/self/cgroup":         "0::/\n",
			"sys/fs/cgroup/memory.max": "102400\n", "sys/fs/cgroup/memory.current": "204800\n",
		}, Memory{Total: 100, Free: 0, Used: 100}},
		"ContainerThatSeesTheHostsPath": {map[string]string{
			"proc/self/cgroup":         "0::/docker/abc/app\n",
			"sys/fs/cgroup/memory.max": "512000\n", "sys/fs/cgroup/memory.current": "0\n",
		}, Memory{Total: 500, Free: 500, Used: 0}},
		"Version1": {map[string]string{
			"proc/self/cgroup": "5:devices:/\n4:memory:/slurm/job_7/step_0\n0::/\n",
			"sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": "512000\n", "sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes": "307200\n",
			"sys/fs/cgroup/memory/slurm/job_7/memory.stat":                  "inactive_file 1\ntotal_inactive_file 102400\n",
			"sys/fs/cgroup/memory/slurm/job_7/step_0/memory.limit_in_bytes": "9223372036854771712\n",
		}, Memory{Total: 500, Free: 300, Used: 200}},
		"PathOutsideTheNamespace": {map[string]string{
			"proc/self/cgroup":         "0::/../other\n",
			"sys/fs/cgroup/memory.max": "512000\n", "sys/fs/cgroup/memory.current": "512000\n",
		}, Memory{Total: 500, Free: 0, Used: 500}},
	} {
		t.Run(name, func(t *testing.T) {
			list := map[string]string{"proc/meminfo": meminfo}
			for k, v := range c.files {
				list[k] = v
			}
			got, err := files(t, list).memory()
			require.NoError(t, err)
			want := Memory{Total: c.want.Total << 10, Free: c.want.Free << 10, Used: c.want.Used << 10}
			require.Equal(t, want, got)
		})
	}
	_, err := files(t, map[string]string{"proc/meminfo": "nothing\n"}).memory()
	require.ErrorContains(t, err, "MemTotal")
}

func TestHost_SignOfAGPU(t *testing.T) {
	root := t.TempDir()
	h := host{root}
	put := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	require.Empty(t, h.sign())
	put("sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n")
	put("sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n")
	put("sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n") // its sound
	require.Empty(t, h.sign())
	put("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
	put("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
	require.Equal(t, "NVIDIA's PCI device 0000:01:00.0", h.sign())
	put("dev/dxg", "")
	require.Equal(t, "/dev/dxg", h.sign())
	put("dev/nvidia1", "")
	require.Equal(t, "/dev/nvidia1", h.sign())
}

func TestHost_CoresNextToADevice(t *testing.T) {
	root := t.TempDir()
	h := host{root}
	dir := filepath.Join(root, "sys/bus/pci/devices/0000:c1:00.0")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "local_cpulist"), []byte("0-3,8,10-11\n"), 0o600))
	d := Device{Cores: h.cores("00000000:C1:00.0")} // as NVML writes it
	require.Equal(t, "0-3,8,10-11", d.Cores)
	require.Equal(t, []int{0, 1, 2, 3, 8, 10, 11}, d.Near())
	for _, address := range []string{"", "00000000:C2:00.0"} {
		require.Nil(t, Device{Cores: h.cores(address)}.Near())
	}
	for _, odd := range []string{"none", "3,x", "0-999999999"} {
		require.Nil(t, Device{Cores: odd}.Near(), odd)
	}
}

func TestDevice_Distance(t *testing.T) {
	d := Device{Links: "X NVL PIX SYS - ODD"}
	at := func(i int) int { return d.Distance(Device{Index: i}) }
	require.IsIncreasing(t, []int{at(0), at(1), at(2), at(3), at(4)})
	for _, unknown := range []int{5, 6, -1} {
		require.Equal(t, at(4), at(unknown))
	}
}

// onHost makes the tests' host the one of Open.
func onHost(t *testing.T, files ...string) {
	t.Helper()
	root := t.TempDir()
	for _, file := range append(files, "proc/meminfo") {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte("MemTotal: 1024 kB\nMemAvailable: 512 kB\n"), 0o600))
	}
	before := thisHost
	thisHost = host{root}
	t.Cleanup(func() { thisHost = before })
}
