// Package gputest gives tests a machine with GPUs on a host without any: a library that
// stands in for the NVIDIA driver's and answers what a state file says, and one for CUDA.
//
// It owns the libraries' sources, their built copies in the temporary folder, the state
// file of each test, and a program that stands in for MPS. It never loads a library. A
// Machine ends with its test; the built copies stay for the next run.
package gputest

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The sources of the libraries.
var (
	//go:embed testdata/nvml.c
	nvml []byte
	//go:embed testdata/mps.c
	mpsClient []byte
	//go:embed testdata/cuda.c
	cuda []byte
	//go:embed testdata/mps.py
	mpsControl []byte
)

// MPSControl stands in for MPS; it lies in a Machine's Folder, for PATH.
const MPSControl = "nvidia-cuda-mps-control"

// StateVariable names the state file in the environment of this process's NVML.
const StateVariable = "GPUMUX_FAKE_NVML"

var building sync.Mutex

// build makes a library and returns its path. All tests share one copy, since a process
// can load only one. The folder holds nothing else, so it also serves as LD_LIBRARY_PATH.
func build(t testing.TB, name string, source []byte, flags ...string) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	args := append([]string{"-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-x", "c"}, flags...)
	sum := sha256.Sum256(append([]byte(strings.Join(args, " ")), source...))
	dir := filepath.Join(os.TempDir(), "gpumux-gputest-"+strconv.Itoa(os.Getuid())+"-"+hex.EncodeToString(sum[:8]))
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatalf("make a folder for %s: %v", name, err)
	}
	tmp := filepath.Join(dir, strconv.Itoa(os.Getpid())+".tmp")
	cc := exec.Command("cc", append(args, "-o", tmp, "-")...)
	cc.Stdin = bytes.NewReader(source)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("build %s (a C compiler named cc is needed): %v\n%s", name, err, out)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatalf("keep %s: %v", name, err)
	}
	return path
}

// Machine is a host with GPUs for the time of a test.
type Machine struct {
	// Library is the path for gpu.Options.Library.
	Library string
	// File is the state file.
	File string
	// Folder has the libraries that know the machine, for LD_LIBRARY_PATH.
	Folder string

	t     testing.TB
	mu    sync.Mutex
	state State
}

// New makes a machine and points this process's environment to it, so its test cannot run
// in parallel with others. Processes that it starts find the libraries through Env.
func New(t testing.TB, s State) *Machine {
	t.Helper()
	m := Prepare(t, s)
	t.Setenv(StateVariable, m.File)
	return m
}

// Prepare is New for child processes, which find the machine through Env.
func Prepare(t testing.TB, s State) *Machine {
	t.Helper()
	dir := t.TempDir()
	m := &Machine{
		Library: build(t, "libnvidia-ml.so.1", nvml), File: filepath.Join(dir, "nvml.state"), Folder: filepath.Join(dir, "lib"), t: t, state: s.complete(),
	}
	for _, folder := range []string{m.File + ".d", m.Folder} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatalf("make a machine: %v", err)
		}
	}
	for name, target := range map[string]string{
		"libnvidia-ml.so.1": m.Library, "libcuda.so.1": build(t, "libcuda.so.1", slices.Concat(mpsClient, cuda)), "state": m.File,
	} {
		if err := os.Symlink(target, filepath.Join(m.Folder, name)); err != nil {
			t.Fatalf("make a machine: %v", err)
		}
	}
	if err := os.WriteFile(filepath.Join(m.Folder, MPSControl), append([]byte("#!/usr/bin/env python3\n"), mpsControl...), 0o755); err != nil {
		t.Fatalf("make a machine: %v", err)
	}
	m.write()
	return m
}

// Env lets a child process find the machine.
func (m *Machine) Env() []string {
	return []string{StateVariable + "=" + m.File, "LD_LIBRARY_PATH=" + m.Folder}
}

// Update changes the state; the next call of any process sees it.
func (m *Machine) Update(change func(*State)) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.state)
	m.write()
}

// Allocate lets a living process hold memory. The process may do so itself, by a file of
// its number in File+".d" with lines of a UUID, a blank and a number of bytes.
func (m *Machine) Allocate(pid int, uuid string, bytes uint64) {
	m.t.Helper()
	replace(m.t, filepath.Join(m.File+".d", strconv.Itoa(pid)), uuid+" "+strconv.FormatUint(bytes, 10)+"\n")
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
