//go:build linux

package clustercheck

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// workPy notes each run of an item. While it runs its byte of the log is locked, which
// the kernel ends with the process: whoever finds it locked runs beside another.
const workPy = `
import fcntl, os, time
import gpumux
arg = gpumux.arg() or {"log": os.devnull, "seconds": 0}
log = os.open(arg["log"], os.O_RDWR | os.O_CREAT | os.O_APPEND)
def work(item):
    number, beside = item if isinstance(item, int) else item["size"], b""
    try: fcntl.lockf(log, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
    except OSError: beside = b" beside"
    os.write(log, b"%d%s\n" % (number, beside))
    if arg["seconds"]: time.sleep(arg["seconds"])
    fcntl.lockf(log, fcntl.LOCK_UN, 1, number)
    return item * 3 if isinstance(item, int) else item
def triple(item): return item * 3
def odd(item):
    if item % 2: raise ValueError("%d is odd" % item)
    return item
`

// site is what clients and workers of a namespace have in common.
type site struct{ address, namespace, store string }

// in is a namespace of the cluster, with the store.
func in(namespace string) site {
	return site{address: at(atFrontend) + ":7233", namespace: namespace,
		store: "s3://main?region=us-east-1&endpoint=http://" + at(atStore) + ":7070"}
}

func (s site) env() []string {
	return []string{"TEMPORAL_ADDRESS=" + s.address, "TEMPORAL_NAMESPACE=" + s.namespace, "GPUMUX_STORE=" + s.store,
		"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE=/dev/null", "HOME=" + c.dir, "XDG_CACHE_HOME=", "XDG_STATE_HOME="}
}

// worker is a worker of the site on a host, with the pools cpu and long; build is its
// version in the deployment gpus, "" none.
func (s site) worker(name string, host int, build string) *process {
	file := filepath.Join(c.dir, name+".yaml")
	temporal := ""
	if build != "" {
		temporal = "temporal: {deployment: gpus, build: " + build + "}\n"
	}
	text := fmt.Sprintf("%sstore: %q\nmetrics: \"%s:9464\"\nbacklog: [cpu]\n"+
		"pools: [{name: cpu, devices: cpu, slots: 1, memory: 512MiB}, {name: long, devices: cpu, slots: 1}]\n"+
		"tasks: {work: {python: \"work.py:work\"}, odd: {python: \"work.py:odd\"}, triple: {python: \"work.py:triple\"}}\n", temporal, s.store, at(host))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		panic(err)
	}
	return c.add(&process{name: name, argv: []string{c.program("gpumux"), "worker", "-f", file}, env: s.env(),
		ready: speaks("http://" + at(host) + ":9464/healthz")})
}

// workers starts the default namespace's two workers unless they run.
func workers(t *testing.T) [2]*process {
	t.Helper()
	var both [2]*process
	for i := range both {
		name := fmt.Sprintf("worker-%d", i+1)
		if c.processes[name] == nil {
			in("default").worker(name, atWorkers+i, "")
		}
		if both[i] = c.processes[name]; !both[i].alive() {
			require.NoError(t, both[i].start())
		}
	}
	return both
}

// job is a map, and its command.
type job struct {
	site
	// items are the numbers from first on, and each comes to three times its number.
	first, items int64
	seconds      float64
	pool         string
	args         []string
	// log notes the runs of items; maps whose numbers differ may share one, and then they
	// share processes.
	log string

	id, out string
	began   time.Time
	took    time.Duration
	code    int
	output  string
	ended   chan struct{}
}

// command is gpumux on the site.
func (s site) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.program("gpumux"), args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), s.env()...)
	return cmd
}

// run runs gpumux on the site to its end, whose code has to be want.
func (s site) run(t *testing.T, want int, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, output bytes.Buffer
	cmd := s.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &output
	_ = cmd.Run()
	require.Equal(t, want, cmd.ProcessState.ExitCode(), "gpumux %v\n%s", args, &output)
	return out.String()
}

// words are the map's command without its output.
func (j *job) words() []string {
	arg, _ := json.Marshal(map[string]any{"log": j.log, "seconds": j.seconds})
	return append([]string{"map", "work", "--pool", j.pool, "--id", j.id, "--arg", string(arg),
		"--range", fmt.Sprintf("%d:%d", j.first, j.first+j.items)}, j.args...)
}

// name gives the map an ID and its files.
func (j *job) name(id string) *job {
	j.id, j.out = id, filepath.Join(c.dir, id+".jsonl")
	j.log = cmp.Or(j.log, filepath.Join(c.dir, id+".log"))
	return j
}

// begin starts the map's command, which is killed with the test.
func (j *job) begin(t *testing.T, id string) *job {
	t.Helper()
	j.name(id)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := j.command(ctx, append(j.words(), "--out", j.out)...)
	output := filepath.Join(c.folder, "logs", id+".log")
	j.began, j.ended = time.Now(), make(chan struct{})
	require.NoError(t, programtest.Spawn(cmd, output))
	go func() {
		defer close(j.ended)
		_ = cmd.Wait()
		j.took, j.code = time.Since(j.began), cmd.ProcessState.ExitCode()
		text, _ := os.ReadFile(output)
		j.output = string(text)
	}()
	t.Cleanup(func() { cancel(); <-j.ended })
	return j
}

// runs waits until so many items have begun.
func (j *job) runs(t *testing.T, items int) {
	t.Helper()
	rig.Wait(t, func() bool {
		text, _ := os.ReadFile(j.log)
		return bytes.Count(text, []byte("\n")) >= items
	}, patience, 20*time.Millisecond, "%d items of %s run", items, j.id)
}

// check waits for the end and returns how many items ran twice, and what is wrong: every
// index is there once, in order, with the right value, and none ran beside itself.
func (j *job) check() (twice int64, err error) {
	if j.ended != nil {
		select {
		case <-j.ended:
		case <-time.After(patience):
			return 0, fmt.Errorf("map %s does not end", j.id)
		}
	}
	if j.code != 0 {
		return 0, fmt.Errorf("map %s: exit code %d: %s", j.id, j.code, j.output)
	}
	results, err := os.Open(j.out)
	if err != nil {
		return 0, err
	}
	defer results.Close()
	index, lines := int64(0), bufio.NewScanner(results)
	for ; lines.Scan(); index++ {
		if want := fmt.Sprintf(`{"index":%d,"value":%d}`, index, 3*(j.first+index)); lines.Text() != want {
			return 0, fmt.Errorf("map %s: result %d is %s and not %s", j.id, index, lines.Text(), want)
		}
	}
	if lines.Err() != nil || index != j.items {
		return 0, fmt.Errorf("map %s: %d results of %d: %w", j.id, index, j.items, lines.Err())
	}
	return j.ran()
}

// ran reads the map's log.
func (j *job) ran() (twice int64, err error) {
	text, err := os.ReadFile(j.log)
	if err != nil {
		return 0, err
	}
	seen := make([]bool, j.items)
	all := int64(0)
	for line := range strings.Lines(string(text)) {
		word, beside, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, err
		}
		index := number - j.first
		if index < 0 || index >= j.items {
			continue // another map's
		}
		if beside != "" {
			return 0, fmt.Errorf("map %s: item %d ran at two places at once", j.id, index)
		}
		if seen[index] {
			twice++
		} else {
			seen[index] = true
			all++
		}
	}
	if all != j.items {
		err = fmt.Errorf("map %s: %d items of %d ran", j.id, all, j.items)
	}
	return twice, err
}
