//go:build linux

package slurmcheck

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// workPy notes every run of an item, and says where it ran.
const workPy = `import os, time

def work(x):
    with open(os.environ["RAN"], "a") as ran:
        ran.write(f"{x}\n")
    time.sleep(0.05)
    return [x * x, os.environ["SLURMD_NODENAME"], os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("OMP_NUM_THREADS", "")]
`

// work is what all maps here have in common.
func work(c *cluster, items int, more ...string) []string {
	require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, "work.py"), []byte(workPy), 0o644))
	return append([]string{"work.py:work", "--range", fmt.Sprint("0:", items), "--pass-env", "RAN,SLURMD_NODENAME", "--out", "rows.jsonl"}, more...)
}

// rows checks that each of so many items has its result once. It returns what the items
// saw, by where they ran, and how many ran more than once.
func (c *cluster) rows(items int) (places map[string]int, repeated int) {
	c.t.Helper()
	file, err := os.Open(filepath.Join(c.dir, "rows.jsonl"))
	require.NoError(c.t, err)
	defer file.Close()
	places = map[string]int{}
	next := 0
	for lines := bufio.NewScanner(file); lines.Scan(); next++ {
		var row struct {
			Index int
			Value []any
		}
		require.NoError(c.t, json.Unmarshal(lines.Bytes(), &row))
		require.Equal(c.t, next, row.Index)
		require.EqualValues(c.t, next*next, row.Value[0])
		places[fmt.Sprintf("%s %s %s", row.Value[1:]...)]++
	}
	require.Equal(c.t, items, next)
	ran, err := os.ReadFile(c.file("ran"))
	require.NoError(c.t, err)
	return places, strings.Count(string(ran), "\n") - items
}

// ran is how often items have run so far.
func (c *cluster) ran() int {
	text, _ := os.ReadFile(c.file("ran"))
	return strings.Count(string(text), "\n")
}

// queue are the jobs that are there, by their numbers, with their states.
func (c *cluster) queue() map[string]string {
	jobs := map[string]string{}
	for line := range strings.Lines(c.try("squeue", "-h", "-r", "-o", "%A %T")) {
		if id, state, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			jobs[id] = state
		}
	}
	return jobs
}

// running waits until so many jobs run, and returns their numbers.
func (c *cluster) running(n int) (ids []string) {
	c.t.Helper()
	rig.Wait(c.t, func() bool {
		ids = nil
		for id, state := range c.queue() {
			if state == "RUNNING" {
				ids = append(ids, id)
			}
		}
		return len(ids) == n
	}, patience, 200*time.Millisecond)
	return ids
}

// command begins a command of a login node.
func (c *cluster) command(argv ...string) *exec.Cmd {
	log, err := os.OpenFile(filepath.Join(c.dir, "command.out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(c.t, err)
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.env(), log, log
	require.NoError(c.t, cmd.Start())
	return cmd
}

func (c *cluster) output() string {
	text, _ := os.ReadFile(filepath.Join(c.dir, "command.out"))
	return string(text)
}

// gone waits until no job is left.
func (c *cluster) gone() {
	c.t.Helper()
	rig.Wait(c.t, func() bool { return len(c.queue()) == 0 }, patience, 200*time.Millisecond, "jobs are left")
}

// One job on two nodes: the first has the server, and slots on both are for the cores
// that the job has there.
func TestSlurm_OneMapOverTwoNodes(t *testing.T) {
	c := begin(t)
	job := c.submit(append([]string{"--nodes=2", "--cpus-per-task=2", c.script("map.sh")}, work(c, 600, "--pool", "cpu")...)...)
	c.wait(job, "COMPLETED")
	places, repeated := c.rows(600)
	require.Zero(t, repeated)
	require.Len(t, places, 2, places)
	for _, node := range []string{"n1", "n2"} {
		require.NotZero(t, places[node+"  1"], "two slots with a thread each: %v", places)
	}
}

// A job that comes near its time limit waits in the queue again, and goes on.
func TestSlurm_TimeLimit(t *testing.T) {
	c := begin(t)
	job := c.submit(append([]string{"--time=1", "--cpus-per-task=2", c.script("map.sh")}, work(c, 2000, "--pool", "cpu")...)...)
	c.wait(job, "COMPLETED")
	require.Regexp(t, `Restarts=[1-9]`, c.do("scontrol", "show", "job", job))
	_, repeated := c.rows(2000)
	t.Log(repeated, "items ran again")
	require.Less(t, repeated, 100)
}

// Workers of a map on a login node are cancelled and preempted.
func TestSlurm_WorkersComeAndGo(t *testing.T) {
	c := begin(t)
	command := c.command(append([]string{programtest.Binary(t), "map", "--local", "--no-worker", "--workers",
		c.script("workers.sh") + " {} 4 --cpus-per-task=1"}, work(c, 2000, "--pool", "cpu", "--slots", "1")...)...)
	workers := c.running(4)
	rig.Wait(t, func() bool { return c.ran() > 200 }, patience, 50*time.Millisecond)
	c.do("scancel", workers[0])
	before := c.ran()
	rig.Wait(t, func() bool { return c.ran() > before+200 }, patience, 50*time.Millisecond)
	c.do("sbatch", "--partition=high", "--nodelist=n1", "--exclusive", "--wrap", "sleep 5")
	require.NoError(t, command.Wait(), c.output())
	_, repeated := c.rows(2000)
	t.Log(repeated, "items ran again")
	require.Less(t, repeated, 100)
	require.Contains(t, c.output(), "note: workers in Slurm: 4 RUNNING")
	c.do("scancel", "--partition=high", "-u", "root")
	c.gone()
}

// A worker that comes near its time limit waits in the queue again, alone: the number of
// the first task of an array is that of all.
func TestSlurm_TheTimeLimitOfAWorker(t *testing.T) {
	c := begin(t)
	command := c.command(append([]string{programtest.Binary(t), "map", "--local", "--no-worker", "--workers", c.script("workers.sh") + " {} 2 --cpus-per-task=1"},
		work(c, 3000, "--pool", "cpu")...)...)
	c.running(2)
	for line := range strings.Lines(c.do("squeue", "-h", "-r", "-o", "%A %F %K")) {
		if fields := strings.Fields(line); fields[0] == fields[1] {
			c.do("scontrol", "update", "JobId="+fields[1]+"_"+fields[2], "TimeLimit=1")
		}
	}
	require.NoError(t, command.Wait(), c.output())
	_, repeated := c.rows(3000)
	require.Zero(t, repeated, "what ran was finished, or handed back before it ran")
	restarts := c.do("scontrol", "show", "job", "-o")
	require.Equal(t, 1, strings.Count(restarts, "Restarts=0 "), restarts)
	c.gone()
}

// The node of a map's server is lost: its job starts on the other one, with the workers
// that are still there.
func TestSlurm_ALostNode(t *testing.T) {
	c := begin(t)
	head := c.submit(append([]string{"--cpus-per-task=1", c.script("map.sh")}, work(c, 1200, "--pool", "cpu", "--slots", "1", "--no-worker",
		"--workers", c.script("workers.sh")+" {} 1 --cpus-per-task=1 --nodelist=n2")...)...)
	both := c.running(2)
	rig.Wait(t, func() bool { return c.ran() > 200 }, patience, 50*time.Millisecond)
	require.Contains(t, c.do("scontrol", "show", "job", head), "NodeList=n1", "the head began on the first node")
	c.kill("n1")
	rig.Wait(t, func() bool { return strings.Contains(c.try("scontrol", "show", "job", head), " Restarts=1 ") }, patience, 200*time.Millisecond)
	c.wait(head, "COMPLETED")
	require.Contains(t, c.do("scontrol", "show", "job", head), "NodeList=n2")
	_, repeated := c.rows(1200)
	t.Log(repeated, "items ran again")
	require.Less(t, repeated, 100)
	require.Len(t, strings.Split(c.do("scontrol", "show", "job", "-o"), "\n"), len(both), "no further worker was submitted")
	c.gone()
}

// Workers whose map's server is lost for good do not keep their nodes.
func TestSlurm_WorkersThatNobodyNeeds(t *testing.T) {
	c := begin(t)
	t.Setenv("GPUMUX_LOOK_EVERY", "0.5")
	command := c.command(append([]string{programtest.Binary(t), "map", "--local", "--no-worker", "--workers", c.script("workers.sh") + " {} 2"},
		work(c, 2000, "--pool", "cpu", "--slots", "1")...)...)
	c.running(2)
	rig.Wait(t, func() bool { return c.ran() > 100 }, patience, 50*time.Millisecond)
	c.do("pkill", "-KILL", "-f", "workers.sh "+c.home) // what would cancel them
	require.NoError(t, command.Process.Kill())
	_ = command.Wait()
	c.gone()
	require.Contains(t, c.do("sh", "-c", "cat "+c.home+"/gpumux/local/*/worker-*.log"), "the map's server has been away for ten minutes")
}

// kill takes a node away with all that runs on it.
func (c *cluster) kill(node string) {
	c.daemons[node].Process.Kill()
	_ = c.daemons[node].Wait()
	entries, err := os.ReadDir("/proc")
	require.NoError(c.t, err)
	for _, entry := range entries {
		environ, _ := os.ReadFile("/proc/" + entry.Name() + "/environ")
		if pid, err := strconv.Atoi(entry.Name()); err == nil && strings.Contains(string(environ), "\x00SLURMD_NODENAME="+node+"\x00") {
			stat, _ := os.ReadFile("/proc/" + entry.Name() + "/stat")
			fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
			parent, _ := strconv.Atoi(fields[1])
			words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent))
			if strings.HasPrefix(string(words), "slurmstepd") {
				_ = syscall.Kill(parent, syscall.SIGKILL)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// Each worker takes the GPU that Slurm gave it.
func TestSlurm_EachWorkerItsGPU(t *testing.T) {
	c := begin(t)
	command := c.command(append([]string{programtest.Binary(t), "map", "--local", "--no-worker", "--workers", c.script("workers.sh") + " {} 4 --gpus=1"}, work(c, 600)...)...)
	require.NoError(t, command.Wait(), c.output())
	places, _ := c.rows(600)
	require.Len(t, places, 4, "two GPUs of two nodes: %v", places)
	c.gone()
}

const largePy = `def large(x):
    held = bytearray(700 << 20) if x == 7 else b""
    for at in range(0, len(held), 4096):
        held[at] = 1
    return x
`

// An item that is too large for the memory of its job costs itself alone, where jobs are
// confined.
func TestSlurm_TheMemoryOfAJob(t *testing.T) {
	if os.Getenv(variable) == "free" {
		rig.Because(t, rig.Cgroups, "jobs are not confined")
	}
	c := begin(t)
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "large.py"), []byte(largePy), 0o644))
	job := c.submit("--mem=600", "--cpus-per-task=2", c.script("map.sh"), "large.py:large", "--range", "0:20", "--pool", "cpu", "--out", "rows.jsonl")
	rig.Wait(t, func() bool { return c.state(job) == "FAILED" }, patience, 200*time.Millisecond)
	output, err := os.ReadFile(filepath.Join(c.dir, "slurm-"+job+".out"))
	require.NoError(t, err)
	require.Regexp(t, `succeeded +19\n +failed +1 +\(1 host_oom\)\n +item 7 = 7: host_oom in slot cpu/\d on CPU: the host had \S+ of memory left`, string(output))
}

const scriptPy = `import sys
import gpumux
from work import work

if __name__ == "__main__":
    workers = gpumux.slurm(2, cpus_per_task=1, **dict(word.split("=") for word in sys.argv[1:]))
    with open("rows.jsonl", "w") as out:
        for r in gpumux.map(work, range(1000), pool="cpu", slots=2, workers=workers, pass_env=["RAN", "SLURMD_NODENAME"], raise_faults=True):
            print('{"index": %d, "value": %s}' % (r.index, str(r.value).replace("'", '"')), file=out, flush=True)
`

// A script that is killed takes its jobs along, and goes on when it is started again.
func TestSlurm_FromPython(t *testing.T) {
	c := begin(t)
	work(c, 0)
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "script.py"), []byte(scriptPy), 0o644))
	python := os.Getenv("GPUMUX_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	wrong := c.command(python, "script.py", "partition=nosuch")
	require.Error(t, wrong.Wait())
	require.Regexp(t, `Unavailable: sbatch: error: invalid partition specified: nosuch`, c.output())

	killed := c.command(python, "script.py")
	c.running(2)
	rig.Wait(t, func() bool { return c.ran() > 200 }, patience, 50*time.Millisecond)
	require.NoError(t, killed.Process.Kill())
	_ = killed.Wait()
	c.gone()
	require.NoError(t, c.command(python, "script.py").Wait(), c.output())
	_, repeated := c.rows(1000)
	t.Log(repeated, "items ran again")
	require.Less(t, repeated, 100)
	c.gone()
}
