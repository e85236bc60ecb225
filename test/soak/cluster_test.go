//go:build soak && linux

package soak

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/s3test"
	"github.com/gpumux/gpumux/test/programtest"
)

// hostsPy notes when each item begins and ends. While an item runs its byte of a file is
// locked, which the system ends with the process: whoever finds it locked runs the item
// at the same time as somebody else. Some items last longer than the server waits before
// it hands a chunk on.
const hostsPy = `
import fcntl, os, time
log = os.open(os.environ["RAN"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
running = os.open(os.environ["RUNNING"], os.O_RDWR | os.O_CREAT)
def note(word, item):
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    os.write(log, f"{word} {item} {os.uname().nodename} {os.getpid()} {now}\n".encode())
def work(item):
    try: fcntl.lockf(running, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, item)
    except OSError: note("beside", item)
    note("begin", item)
    time.sleep(30 if item % 600 == 300 else 0.025)
    note("end", item)
    fcntl.lockf(running, fcntl.LOCK_UN, 1, item)
    return item * 3
`

// cluster is a server, a store, workers and a client, each on a host of its own.
type cluster struct {
	*network
	dir, binary           string
	server, store, client *host
	workers               []*host
	objects               *s3test.Server
	// keep is the store seen from this process, whatever happens to the network.
	keep *store.Store

	mu sync.Mutex
	// now is the worker of each host.
	now map[*host]*program
	// stored is when an item was first seen to have a result, by the clock of the task.
	stored map[int64]time.Duration
	// stopped are the hosts whose worker stood still while its task processes ran on.
	stopped map[string]bool
}

// program is a command that runs on a host. It is the first process of a process
// namespace, so its death is everybody's there.
type program struct {
	*exec.Cmd
	output programtest.Screen
	ended  chan struct{}
}

func newCluster(t *testing.T, n *network) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{network: n, dir: dir, binary: programtest.Binary(t), server: n.hosts[0], store: n.hosts[1], client: n.hosts[2],
		workers: n.hosts[3:], objects: s3test.New(t), now: map[*host]*program{}, stored: map[int64]time.Duration{},
		stopped: map[string]bool{}}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hosts.py"), []byte(hostsPy), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ran"), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "worker.yaml"), fmt.Appendf(nil, "temporal: {connect: %q}\n"+
		"pools: [{name: cpu, devices: cpu, slots: 4}]\ntasks: {work: {python: \"hosts.py:work\", env: {RAN: %q, RUNNING: %q}}}\n",
		c.connection(), filepath.Join(dir, "ran"), filepath.Join(dir, "running")), 0o644))
	s3 := &http.Server{Handler: c.objects}
	listener := c.store.listen(9000)
	go func() { _ = s3.Serve(listener) }()
	t.Cleanup(func() { _ = s3.Close() })
	var err error
	c.keep, err = store.Open(t.Context(), c.objects.URL(""))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.keep.Close() })
	return c
}

// connection is the file by which the others find the server.
func (c *cluster) connection() string { return filepath.Join(c.dir, "data", "temporal.toml") }

// url is the store as the hosts see it.
func (c *cluster) url() string {
	return "s3://bucket?region=eu-west-1&endpoint=http://" + c.store.address + ":9000"
}

// run starts gpumux on a host; it is killed with the test.
func (c *cluster) run(h *host, args ...string) *program {
	c.t.Helper()
	p, err := c.begin(h, args...)
	require.NoError(c.t, err)
	c.t.Cleanup(p.kill)
	return p
}

func (c *cluster) begin(h *host, args ...string) (*program, error) {
	const enter = `mount -t proc proc /proc && hostname "$0" && exec "$@"`
	p := &program{Cmd: exec.Command("sh", append([]string{"-c", enter, h.name, c.binary}, args...)...), ended: make(chan struct{})}
	home := filepath.Join(c.dir, h.name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	p.Dir, p.Stdout, p.Stderr = c.dir, &p.output, &p.output
	p.Env = append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME=", "XDG_STATE_HOME=",
		"TEMPORAL_CONFIG_FILE="+c.connection())
	p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS, Unshareflags: syscall.CLONE_NEWNS}
	if err := h.within(p.Start); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.Wait()
	}()
	return p, nil
}

// kill ends the program and everything that it started, and returns when all are gone.
func (p *program) kill() {
	_ = p.Process.Kill()
	<-p.ended
}

// serve starts Temporal on its host and returns when it answers.
func (c *cluster) serve() *program {
	c.t.Helper()
	p := c.run(c.server, "dev", "--no-worker", "--headless", "--listen", c.server.address, "--store", c.url(), "--data", filepath.Join(c.dir, "data"))
	require.Eventually(c.t, func() bool { return strings.Contains(p.output.String(), "Ctrl-C stops") }, 3*time.Minute, 20*time.Millisecond,
		"the server is ready")
	return p
}

// work starts a worker on a host. One that cannot reach the server or the store says so
// and ends; it is started again, as by systemd.
func (c *cluster) work(h *host) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			p, err := c.begin(h, "worker", "-f", "worker.yaml")
			if err != nil {
				c.t.Errorf("start a worker on host %s: %v", h.name, err)
				return
			}
			c.mu.Lock()
			c.now[h] = p
			c.mu.Unlock()
			select {
			case <-p.ended:
			case <-quit:
				p.kill()
			}
			c.log(h, p)
			select {
			case <-quit:
				return
			case <-time.After(time.Second):
			}
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { close(quit) }); <-done }
	c.t.Cleanup(stop)
	return stop
}

// signal sends a signal to the worker of a host, but not to its task processes.
func (c *cluster) signal(h *host, signal syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if signal == syscall.SIGSTOP {
		c.stopped[h.name] = true
	}
	_ = c.now[h].Process.Signal(signal) // one that has just ended is started again
}

// log keeps what a program said where GPUMUX_SOAK_LOGS asks for it.
func (c *cluster) log(h *host, p *program) {
	if dir := os.Getenv("GPUMUX_SOAK_LOGS"); dir != "" {
		_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.log", h.name, p.Process.Pid)), []byte(p.output.String()), 0o644)
	}
}

// boottime is the clock that the task notes.
func boottime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano())
}

// look notes which items have a result until the test ends.
func (c *cluster) look() {
	var tail *store.Tail
	for c.t.Context().Err() == nil {
		for _, key := range c.objects.Keys() {
			if before, _, ok := strings.Cut(key, ".parts/"); ok && tail == nil {
				if in, err := c.keep.Folder(before + ".parts"); err == nil {
					tail = in.Tail(true)
				}
			}
		}
		if tail != nil {
			var fresh []int64
			for line, err := range tail.Lines(c.t.Context(), nil) {
				var result struct{ Index int64 }
				if err != nil || json.Unmarshal(line, &result) != nil {
					break
				}
				fresh = append(fresh, result.Index)
			}
			now := boottime()
			c.mu.Lock()
			for _, index := range fresh {
				c.stored[index] = now
			}
			c.mu.Unlock()
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (c *cluster) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.stored)
}

// attempt is one run of an item; end is 0 when its process was ended.
type attempt struct {
	host       string
	pid        int
	begin, end time.Duration
}

// attempts reads what the task noted, and which items ran at two places at the same time.
func (c *cluster) attempts() (all map[int64][]attempt, beside []int64) {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, "ran"))
	require.NoError(c.t, err)
	all = map[int64][]attempt{}
	for line := range strings.Lines(string(data)) {
		var word, host string
		var item, at int64
		var pid int
		_, err := fmt.Sscan(line, &word, &item, &host, &pid, &at)
		require.NoError(c.t, err, line)
		switch word {
		case "begin":
			all[item] = append(all[item], attempt{host: host, pid: pid, begin: time.Duration(at)})
		case "end":
			tries := all[item]
			for i, a := range slices.Backward(tries) { // another process may have the number of one that was ended
				if a.host == host && a.pid == pid {
					tries[i].end = time.Duration(at)
					break
				}
			}
		case "beside":
			beside = append(beside, item)
		}
	}
	return all, beside
}
