package template

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/session"
)

// What an import may leave, in a tree of the test's own.
func TestFootprint_Rules(t *testing.T) {
	const quiet = "7f00-7f10 rw-p 00000000 00:00 0 [heap]\n7f20-7f30 r--s 00000000 08:01 7 /usr/lib/gconv/gconv-modules.cache\n"
	for name, test := range map[string]struct {
		links    map[string]string
		maps     string
		children string
		threads  int
		want     string
	}{
		"Nothing": {links: map[string]string{"0": "/dev/null", "1": "/memfd:gpumux-output (deleted)", "7": "/dev/urandom"}},
		"Before":  {links: map[string]string{"3": "socket:[7]", "12": "pipe:[8]"}},
		"Nvidia":  {links: map[string]string{"9": "/dev/nvidiactl"}, want: "uses the device (/dev/nvidiactl is open)"},
		"Known":   {links: map[string]string{"3": "/dev/nvidia0"}, maps: "7f40-7f50 rw-s 00000000 00:06 9 /dev/nvidia0\n", want: "uses the device"},
		"AMD":     {links: map[string]string{"9": "/dev/kfd"}, want: "uses the device"},
		"Intel":   {links: map[string]string{"9": "/dev/dri/renderD128"}, want: "uses the device"},
		"Mapped":  {maps: "7f40-7f50 rw-s 00000000 00:06 9 /dev/nvidia-uvm\n", want: "uses the device (/dev/nvidia-uvm is open)"},
		"Library": {maps: "7f40-7f50 r-xp 00000000 08:01 9 /usr/lib/libcuda.so.1\n"},
		"Threads": {threads: 2, want: "leaves 2 threads running"},
		"Child":   {children: "77 78 ", want: "leaves process 77 running"},
		"Socket":  {links: map[string]string{"9": "socket:[9]"}, want: "leaves socket:[9] open"},
		"File":    {links: map[string]string{"9": "/data/x y.bin"}, want: "leaves /data/x y.bin open"},
		"Shared":  {maps: "7f40-7f50 rw-s 00000000 00:01 9 /dev/shm/sem.a\n", want: "items would share (/dev/shm/sem.a)"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"42/maps": quiet + test.maps, "42/task/42/children": test.children}
			for n := range test.threads {
				files[fmt.Sprintf("42/task/%d/children", 43+n)] = ""
			}
			proc := shown(t, files)
			require.NoError(t, os.Mkdir(filepath.Join(proc, "42/fd"), 0o755))
			for fd, path := range test.links {
				require.NoError(t, os.Symlink(path, filepath.Join(proc, "42/fd", fd)))
			}
			why := footprint(proc, 42, []string{"3", "12"}, deviceFiles, "")
			if test.want == "" {
				require.Empty(t, why)
			} else {
				require.Contains(t, why, test.want)
			}
		})
	}
	proc := filepath.Join(t.TempDir(), "42")
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "fd"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(proc, "maps"), nil, 0o644))
	require.NoError(t, os.Symlink("/dev/nvidiactl", filepath.Join(proc, "fd", "9")))
	require.Contains(t, footprint(filepath.Dir(proc), 42, nil, deviceFiles, "at embed.py:3, 'x = f()'"), "uses the device at embed.py:3, 'x = f()' (/dev/nvidiactl is open)")
	require.Contains(t, footprint(t.TempDir(), 42, nil, deviceFiles, ""), "cannot be seen")
}

// A real process that holds a file open whose path is that of a device.
func TestFootprint_OfAProcess(t *testing.T) {
	dir := t.TempDir()
	device := filepath.Join(dir, "nvidia0")
	require.NoError(t, os.WriteFile(device, nil, 0o644))
	for script, want := range map[string]string{
		"exec 7<" + device + "; echo ready; read x":        "uses the device (" + device + " is open)",
		"exec 7</dev/null; echo ready; read x":             "",
		"sleep 600 & echo ready; read x; kill $!":          "running, which belongs to no item",
		"exec 7</etc/passwd; echo ready; read x":           "leaves /etc/passwd open",
		"exec 7</etc/passwd 8<&7 7<&-; echo ready; read x": "leaves /etc/passwd open",
	} {
		cmd := exec.Command("/bin/sh", "-c", script)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		word := make([]byte, 6)
		_, err = out.Read(word)
		require.NoError(t, err)
		why := footprint(procfs, cmd.Process.Pid, inherited(t, cmd.Process.Pid), []string{filepath.Join(dir, "nvidia")}, "")
		if want == "" {
			require.Empty(t, why, script)
		} else {
			require.Contains(t, why, want, script)
		}
		in.Close()
		cmd.Wait()
	}
}

// inherited are the descriptors of a shell that are not of its script's making: 0 to 2
// and what the test itself was started with.
func inherited(t *testing.T, pid int) []string {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("%s/%d/fd", procfs, pid))
	require.NoError(t, err)
	var list []string
	for _, entry := range entries {
		if entry.Name() != "7" && entry.Name() != "8" {
			list = append(list, entry.Name())
		}
	}
	return list
}

// The answers of a template, and what becomes of them.
func TestTemplate_Answers(t *testing.T) {
	for answer, want := range map[string]string{
		"pid 7": "", "failed OSError: no": "could not fork: OSError: no", "pid x": "invalid syntax",
	} {
		ours, theirs, err := openChannel()
		require.NoError(t, err)
		conn, err := net.FileConn(theirs)
		require.NoError(t, err)
		theirs.Close()
		tmp := &template{channel: ours, o: session.Options{StartLimit: forkLimit}}
		go func() {
			var request [64]byte
			conn.Read(request[:])
			conn.Write([]byte(answer))
		}()
		ask := func() (int, error) {
			wire, err := os.Open(os.DevNull)
			require.NoError(t, err)
			return tmp.request(1, os.Stderr, wire)
		}
		pid, err := ask()
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, 7, pid)
		} else {
			require.ErrorContains(t, err, want)
		}
		conn.Close()
		_, err = ask()
		require.ErrorContains(t, err, "the template ended while it forked")
		ours.Close()
	}
}

// shown makes the files that the system shows, below a folder of the test's own.
func shown(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}
