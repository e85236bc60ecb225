package e2e

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// A server that is killed and starts elsewhere with the same folder is found again, by
// the worker and by the command that waits, and no finished item runs again.
func TestGroup_ItsServerMoves(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	server := func() *program {
		p := s.begin("dev", "--listen", "127.0.0.1:0", "--headless", "--no-worker", "--data", "data")
		p.ready()
		return p
	}
	first := server()
	worker := s.begin("worker", "--tasks", ".", "--slots", "2", "--connect", "data/temporal.toml")
	waiting := s.begin("map", "step:gate", "--range", "0:20", "--pool", "cpu", "--option", "chunk=1", "--out", "r.jsonl", "--connect", "data/temporal.toml")
	var finished map[string]int
	rig.Wait(t, func() bool {
		finished = s.calls()
		return len(finished) >= 3 && storedItems(t, s.path("data/store")) == len(finished)
	}, time.Minute, 20*time.Millisecond, "%s\n%s", &waiting.stderr, &worker.stderr)
	require.NoError(t, first.Process.Kill())
	<-first.ended
	before := s.file("data/temporal.toml")
	server()
	require.NotEqual(t, before, s.file("data/temporal.toml"), "another port, as on another host")
	s.write("open", "")
	require.Zero(t, waiting.code(), "%s\n%s", &waiting.stderr, &worker.stderr)
	require.Len(t, s.lines(s.file("r.jsonl")), 20)
	calls := s.calls()
	require.Len(t, calls, 20)
	for item := range finished {
		require.Equal(t, 1, calls[item], "%v", calls)
	}
}

// What ends a worker with its task processes, as systemd and Slurm may, is no fault of
// the items that ran.
func TestGroup_AllOfAWorkerIsTold(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.begin("dev", "--listen", "127.0.0.1:0", "--headless", "--no-worker", "--data", "data").ready()
	worker := []string{"worker", "--tasks", ".", "--slots", "2", "--connect", "data/temporal.toml"}
	first := s.begin(worker...)
	waiting := s.begin("map", "step:gate", "--range", "5:9", "--pool", "cpu", "--option", "chunk=1", "--out", "r.jsonl", "--connect", "data/temporal.toml")
	var ready [][]string
	rig.Wait(t, func() bool {
		ready = regexp.MustCompile(`"task process ready".*"pid":(\d+)`).FindAllStringSubmatch(first.stderr.String(), -1)
		return len(ready) == 2
	}, time.Minute, 20*time.Millisecond, "%s", &first.stderr)
	for _, each := range ready {
		pid, _ := strconv.Atoi(each[1])
		require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
	}
	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	require.Zero(t, first.code(), "%s", &first.stderr)
	require.NotRegexp(t, "a call failed|tried again", first.stderr.String())
	s.write("open", "")
	s.begin(worker...)
	require.Zero(t, waiting.code(), "%s", &waiting.stderr)
	require.Len(t, s.lines(s.file("r.jsonl")), 4)
}

// Temporal's own SDK for another language gets in with the connection file alone, and
// not without.
func TestGroup_OtherPrograms(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.begin("dev", "--listen", "127.0.0.1:0", "--headless", "--tasks", ".", "--data", "my däta").ready()
	s.write("start.py", `
import asyncio, os, socket, ssl, tomllib
with open(os.environ["TEMPORAL_CONFIG_FILE"], "rb") as file:
    profile = tomllib.load(file)["profile"]["default"]
host, port = profile["address"].split(":")
openssl = ssl.create_default_context(cadata=profile["tls"]["server_ca_cert_data"])
with socket.create_connection((host, int(port))) as plain, openssl.wrap_socket(plain, server_hostname=profile["tls"]["server_name"]):
    pass
from temporalio.client import Client
from temporalio.envconfig import ClientConfig

async def main():
    client = await Client.connect(**ClientConfig.load_client_connect_config())
    summary = await client.execute_workflow("gpumux.Map", {"task": "step:double", "ladder": ["cpu"], "items": [1, 2]}, id="m", task_queue="gpumux")
    print(summary["succeeded"])

asyncio.run(main())
import gpumux
print([row.value for row in gpumux.connect(file=os.environ["TEMPORAL_CONFIG_FILE"]).map("step:double", [4], pool="cpu")])
`)
	start := func(file string) (string, error) {
		program := exec.CommandContext(t.Context(), venv(t)+"/bin/python", "start.py")
		program.Dir, program.Env = s.dir, append(s.env, "TEMPORAL_CONFIG_FILE="+file, "PYTHONPATH="+pythonClient(t), "GPUMUX_BINARY="+programtest.Binary(t))
		out, err := program.CombinedOutput()
		return string(out), err
	}
	out, err := start("my däta/temporal.toml")
	require.NoError(t, err, out)
	require.Equal(t, "2\n[8]\n", out)
	guess := strings.Replace(s.file("my däta/temporal.toml"), `"Bearer `, `"Bearer 0`, 1)
	s.write("guess.toml", guess)
	out, err = start("guess.toml")
	require.Error(t, err)
	require.Contains(t, out, "Request unauthorized.")
}

// host makes a shell in a network and with a name of its own.
func (s *shell) host(name string) *shell {
	s.t.Helper()
	if os.Getuid() != 0 {
		rig.Because(s.t, rig.Root)
	}
	holder := exec.Command("unshare", "--net", "--uts", "sh", "-c", "hostname "+name+" && ip link set lo up && echo made && exec cat")
	in, err := holder.StdinPipe()
	require.NoError(s.t, err)
	out, err := holder.StdoutPipe()
	require.NoError(s.t, err)
	holder.Stderr = os.Stderr
	require.NoError(s.t, holder.Start())
	s.t.Cleanup(func() { _ = in.Close(); _ = holder.Wait() })
	if n, err := out.Read(make([]byte, 5)); n != 5 {
		rig.Because(s.t, rig.Root, "no network of its own may be made: ", err)
	}
	away := *s
	away.program, away.before = "nsenter", []string{"--target", strconv.Itoa(holder.Process.Pid), "--net", "--uts", "--", programtest.Binary(s.t)}
	return &away
}

// TestGroup_AcrossHosts has two hosts, of which one gets the connection file.
func TestGroup_AcrossHosts(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	near, far := s.host("near"), s.host("far")
	sh := func(line string) {
		out, err := exec.Command("sh", "-ec", line).CombinedOutput()
		require.NoError(t, err, "%s: %s", line, out)
	}
	sh("ip link add g0 netns " + near.before[1] + " type veth peer name g0 netns " + far.before[1])
	for i, host := range []*shell{near, far} {
		enter := "nsenter --target " + host.before[1] + " --net "
		sh(enter + "ip addr add 10.77.0." + strconv.Itoa(i+1) + "/24 dev g0; " + enter + "ip link set g0 up")
	}
	server := near.begin("dev", "--listen", "10.77.0.1:7240", "--no-worker", "--data", "data")
	server.ready()

	// Of all that listens there, only the server answers another host.
	ports := listening(t, server.Process.Pid)
	require.Len(t, ports, 6)
	open := 0
	for _, address := range ports {
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		reach := exec.Command("nsenter", "--target", far.before[1], "--net", "bash", "-c", "exec 3<>/dev/tcp/10.77.0.1/"+port)
		if reach.Run() == nil {
			open++
			require.Equal(t, "7240", port)
		}
	}
	require.Equal(t, 1, open)
	p := far.run(3, "ls", "--address", "10.77.0.1:7240")
	require.Contains(t, p.stderr.String(), "with the file that it names")
	stranger := exec.Command("cat", s.path("data/temporal.toml"))
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	require.Error(t, stranger.Run(), "another user of a shared folder")

	worker := far.begin("worker", "--tasks", ".", "--connect", "data/temporal.toml")
	p = far.run(0, "map", "step:double", "--range", "0:50", "--pool", "cpu", "--out", "-", "--connect", "data/temporal.toml")
	require.Len(t, s.lines(p.stdout.String()), 50, "%s", &worker.stderr)
	require.Contains(t, near.run(0, "workers", "--connect", "data/temporal.toml").stdout.String(), "far/")

	// A host that has another folder at the path of the store is told so before any work.
	apart := *far
	apart.before = append([]string{"--target", far.before[1], "--net", "--uts", "unshare", "--mount", "sh", "-c",
		`mount -t tmpfs none ` + s.path("data/store") + ` && exec "$0" "$@"`}, programtest.Binary(t))
	for _, command := range [][]string{{"worker", "--tasks", "."}, {"worker", "--tasks", ".", "--check"}, {"map", "step:double", "--range", "0:3", "--pool", "cpu"}} {
		p = apart.run(3, append(command, "--connect", "data/temporal.toml")...)
		require.Contains(t, p.stderr.String()+p.stdout.String(), "mount the same one at this path")
	}
}
