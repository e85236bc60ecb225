//go:build linux

package slurmcheck

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// variable asks for this check: confined or free.
const variable = "GPUMUX_SLURM"

func TestMain(m *testing.M) { os.Exit(programtest.Main(m)) }

// patience is the limit of everything that is waited for.
const patience = 3 * time.Minute

// configuration is that of two nodes that are one machine. A node that does not answer
// for ten seconds counts as lost; requeued jobs start again after five, not after 120.
const configuration = `ClusterName=check
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[3]s
AuthType=auth/munge
AuthInfo=socket=%[2]s/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmctldPidFile=%[2]s/slurmctld.pid
SlurmdPidFile=%[2]s/%%n.pid
SlurmdSpoolDir=%[2]s/%%n
StateSaveLocation=%[2]s/state
SlurmctldLogFile=%[2]s/slurmctld.log
SlurmdLogFile=%[2]s/%%n.log
SlurmdParameters=config_overrides
SlurmdTimeout=10
SchedulerParameters=sched_interval=2,bf_interval=2
%[6]s
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=400
MpiDefault=none
SwitchType=switch/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
ReturnToService=2
KillWait=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
NodeName=n1 NodeHostname=%[1]s NodeAddr=127.0.0.1 Port=%[4]s CPUs=%[7]d RealMemory=4000 Gres=gpu:2
NodeName=n2 NodeHostname=%[1]s NodeAddr=127.0.0.1 Port=%[5]s CPUs=%[7]d RealMemory=4000 Gres=gpu:2
PartitionName=low Nodes=n[1-2] Default=YES MaxTime=60 PriorityTier=1 PreemptMode=REQUEUE
PartitionName=high Nodes=n[1-2] MaxTime=60 PriorityTier=10 PreemptMode=OFF
`

// confined is how most clusters keep jobs apart, on nodes of as many cores as there are.
// free is how some do that have no cgroups. What of a job gets which signal differs.
const (
	confined = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup,task/affinity"
	free     = "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none"
)

// cluster is a Slurm of one test.
type cluster struct {
	t *testing.T
	// dir is the working folder of jobs, home their state, logs has Slurm's files.
	dir, home, logs string
	gpus            *gputest.Machine
	daemons         map[string]*exec.Cmd
}

// begin starts a Slurm, and leaves the test out where nobody asked for one.
func begin(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv(variable) == "" {
		rig.Because(t, rig.Cluster, "make slurm-check starts it")
	}
	c := &cluster{t: t, dir: t.TempDir(), home: t.TempDir(), logs: t.TempDir(), daemons: map[string]*exec.Cmd{}}
	c.gpus = gputest.Prepare(t, gputest.State{GPUs: make([]gputest.GPU, 2)})
	host, err := os.Hostname()
	require.NoError(t, err)
	host, _, _ = strings.Cut(host, ".")
	require.NoError(t, os.Chmod(filepath.Dir(c.logs), 0o755)) // munge asks for it
	require.NoError(t, os.Chmod(c.logs, 0o755))
	for _, folder := range []string{"state", "n1", "n2"} {
		require.NoError(t, os.Mkdir(filepath.Join(c.logs, folder), 0o755))
	}
	for i := range 2 {
		require.NoError(t, unix.Mknod(filepath.Join(c.logs, fmt.Sprint("nvidia", i)), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	}
	kind, cores := confined, runtime.NumCPU()
	if os.Getenv(variable) == "free" {
		kind, cores = free, 8
	}
	c.write("slurm.conf", fmt.Sprintf(configuration, host, c.logs, programtest.FreePort(t), programtest.FreePort(t), programtest.FreePort(t), kind, cores))
	c.write("cgroup.conf", "CgroupMountpoint=/sys/fs/cgroup\nConstrainCores=yes\nConstrainRAMSpace=yes\n")
	c.write("gres.conf", "NodeName=n[1-2] Name=gpu File="+c.logs+"/nvidia[0-1]\n")
	c.write("munge.key", strings.Repeat("key of a check. ", 64))
	t.Cleanup(c.end)
	c.daemon("munged", "munged", "--foreground", "--key-file", c.file("munge.key"), "--socket", c.file("munge.socket"), "--pid-file", c.file("munged.pid"),
		"--log-file", c.file("munged.log"), "--seed-file", c.file("munge.seed"))
	rig.Wait(t, func() bool { _, err := os.Stat(c.file("munge.socket")); return err == nil }, patience, 20*time.Millisecond)
	c.daemon("slurmctld", "slurmctld", "-D", "-f", c.file("slurm.conf"))
	c.daemon("n1", "slurmd", "-D", "-N", "n1", "-f", c.file("slurm.conf"))
	c.daemon("n2", "slurmd", "-D", "-N", "n2", "-f", c.file("slurm.conf"))
	rig.Wait(t, func() bool { return c.try("sinfo", "-h", "-t", "idle", "-o", "%D") == "2" }, patience, 200*time.Millisecond)
	return c
}

func (c *cluster) file(name string) string { return filepath.Join(c.logs, name) }

func (c *cluster) write(name, text string) {
	require.NoError(c.t, os.WriteFile(c.file(name), []byte(text), 0o600))
}

// env is that of whoever gives commands, and so of jobs.
func (c *cluster) env() []string {
	binary := programtest.Binary(c.t)
	client, err := filepath.Abs("../../clients/python")
	require.NoError(c.t, err)
	return append(append(os.Environ(), c.gpus.Env()...), "SLURM_CONF="+c.file("slurm.conf"), "XDG_STATE_HOME="+c.home, "GPUMUX_BINARY="+binary,
		"PYTHONPATH="+client, "RAN="+c.file("ran"), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
}

// daemon starts a program that ends with the test binary.
func (c *cluster) daemon(name string, argv ...string) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+c.file("slurm.conf"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(c.t, programtest.Spawn(cmd, c.file(name+".out")))
	c.daemons[name] = cmd
}

// end cancels all jobs and stops the daemons. What a failed test needs is shown.
func (c *cluster) end() {
	c.try("scancel", "-u", "root")
	c.gone()
	if c.t.Failed() {
		c.t.Log(c.try("sh", "-c", "tail -n 30 "+c.logs+"/slurmctld.log "+c.dir+"/*.out "+c.dir+"/*.log "+c.home+"/gpumux/local/*/worker-*"))
	}
	for _, name := range []string{"n1", "n2", "slurmctld", "munged"} {
		if cmd := c.daemons[name]; cmd != nil {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
	}
}

// run runs a command of Slurm or of the shell and returns what it printed.
func (c *cluster) run(argv []string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = c.dir, c.env()
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// try is run for a command that may fail.
func (c *cluster) try(argv ...string) string {
	out, _ := c.run(argv)
	return out
}

// do is run for a command that has to succeed.
func (c *cluster) do(argv ...string) string {
	c.t.Helper()
	out, err := c.run(argv)
	require.NoError(c.t, err, "%v: %s", argv, out)
	return out
}

// script is one of deploy/slurm.
func (c *cluster) script(name string) string {
	path, err := filepath.Abs("../../deploy/slurm/" + name)
	require.NoError(c.t, err)
	return path
}

// submit gives sbatch a job and returns its number.
func (c *cluster) submit(argv ...string) string {
	c.t.Helper()
	return c.do(append([]string{"sbatch", "--parsable"}, argv...)...)
}

// state is that of a job, such as RUNNING.
func (c *cluster) state(job string) string {
	for field := range strings.FieldsSeq(c.try("scontrol", "show", "job", job)) {
		if text, is := strings.CutPrefix(field, "JobState="); is {
			return text
		}
	}
	return ""
}

// wait waits until a job, or a task of an array, is in a state.
func (c *cluster) wait(job, state string) {
	c.t.Helper()
	rig.Wait(c.t, func() bool {
		now := c.state(job)
		require.NotEqual(c.t, "FAILED", now, "job %s", job)
		return now == state
	}, patience, 200*time.Millisecond)
}
