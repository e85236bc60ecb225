// Package gputest gives tests a machine with GPUs that does not need one: a real shared
// library in the place of the NVIDIA driver's, built by the C compiler and told by a file
// what to answer.
//
// It owns the library's source, the built copy in the temporary folder and the state file of
// each test. It never loads the library itself and imports nothing of the product, so every
// package may use it. A Machine ends with its test; the built copy stays for the next run.
package gputest

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

//go:embed testdata/nvml.c
var source []byte

// StateVariable is the environment variable in which the library finds its state file.
const StateVariable = "GPUMUX_FAKE_NVML"

var building sync.Mutex

// Library builds the stand-in for libnvidia-ml.so.1 and returns its path. All tests of a
// process share one copy, as a process can only ever load one. The folder holds nothing
// else, so it also serves as LD_LIBRARY_PATH.
func Library(t testing.TB) string {
	t.Helper()
	return build(t)
}

// OldLibrary is like Library, for a driver from before MIG, MPS lists, events and recovery
// actions. A process that loaded one of the two cannot load the other.
func OldLibrary(t testing.TB) string {
	t.Helper()
	return build(t, "-DOLD_DRIVER")
}

func build(t testing.TB, flags ...string) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	args := append([]string{"-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"}, flags...)
	sum := sha256.Sum256(append([]byte(strings.Join(args, " ")), source...))
	dir := filepath.Join(os.TempDir(), "gpumux-gputest-"+strconv.Itoa(os.Getuid())+"-"+hex.EncodeToString(sum[:8]))
	path := filepath.Join(dir, "libnvidia-ml.so.1")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatalf("make a folder for the NVML stand-in: %v", err)
	}
	work := t.TempDir()
	src := filepath.Join(work, "nvml.c")
	if err := os.WriteFile(src, source, 0o600); err != nil {
		t.Fatalf("write the source of the NVML stand-in: %v", err)
	}
	tmp := filepath.Join(dir, strconv.Itoa(os.Getpid())+".tmp")
	out, err := exec.Command("cc", append(args, "-o", tmp, src)...).CombinedOutput()
	if err != nil {
		t.Fatalf("build the NVML stand-in (a C compiler named cc is needed): %v\n%s", err, out)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatalf("keep the NVML stand-in: %v", err)
	}
	return path
}

// Machine is a host with GPUs for the time of a test.
type Machine struct {
	// Library is the path for gpu.Options.Library.
	Library string
	// File is the state file.
	File string

	t     testing.TB
	mu    sync.Mutex
	state State
	seq   int
}

// New makes a machine and points this process's environment to it, which is why its test
// cannot run in parallel with others.
func New(t testing.TB, s State) *Machine {
	t.Helper()
	m := Prepare(t, s)
	t.Setenv(StateVariable, m.File)
	return m
}

// Prepare is New without touching the environment: for use by child processes through Env.
func Prepare(t testing.TB, s State) *Machine {
	t.Helper()
	m := &Machine{Library: Library(t), File: filepath.Join(t.TempDir(), "nvml.state"), t: t, state: s.complete()}
	if err := os.MkdirAll(m.File+".d", 0o755); err != nil {
		t.Fatalf("make the folder of allocations: %v", err)
	}
	m.write()
	return m
}

// Env is what a child process needs in its environment to find the machine.
func (m *Machine) Env() []string {
	return []string{StateVariable + "=" + m.File, "LD_LIBRARY_PATH=" + filepath.Dir(m.Library)}
}

// Update changes the state; the next call of any process sees it.
func (m *Machine) Update(change func(*State)) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.state)
	m.write()
}

// Xid raises an Xid error on a GPU. Only watches that run already see it.
func (m *Machine) Xid(uuid string, xid uint64) { m.t.Helper(); m.raise(uuid, 8, xid, none, none) }

// InstanceXid raises an Xid error on one MIG instance, named by its GPU and its numbers.
func (m *Machine) InstanceXid(gpu string, xid uint64, gi, ci uint32) {
	m.t.Helper()
	m.raise(gpu, 8, xid, gi, ci)
}

// ECC raises a double-bit memory error on a GPU.
func (m *Machine) ECC(uuid string) { m.t.Helper(); m.raise(uuid, 2, 0, none, none) }

const none = 0xFFFFFFFF

func (m *Machine) raise(uuid string, kind, data uint64, gi, ci uint32) {
	m.t.Helper()
	m.Update(func(s *State) {
		m.seq++
		s.events = append(s.events, event{m.seq, uuid, kind, data, gi, ci})
	})
}

// Allocate lets a living process hold memory on a device; 0 bytes lets it go. The process may
// do it itself, by a file named as its process number in the folder File+".d", with lines
// of a UUID, a blank and a number of bytes.
func (m *Machine) Allocate(pid int, uuid string, bytes uint64) {
	m.t.Helper()
	path := filepath.Join(m.File+".d", strconv.Itoa(pid))
	if bytes == 0 {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			m.t.Fatalf("let go of memory: %v", err)
		}
		return
	}
	replace(m.t, path, uuid+" "+strconv.FormatUint(bytes, 10)+"\n")
}

func (m *Machine) write() { m.t.Helper(); replace(m.t, m.File, m.state.text()) }

// replace never lets a reader see half a file.
func replace(t testing.TB, path, text string) {
	t.Helper()
	tmp := filepath.Join(filepath.Dir(filepath.Dir(path)), filepath.Base(path)+".tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
}
