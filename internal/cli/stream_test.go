package cli

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/local"
)

func TestStream_WhatItSays(t *testing.T) {
	lonely(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	write(t, "task.py", "def half(x): return x / 2\n")
	write(t, "raises.py", "raise OSError('no model here')\ndef f(x): return x\n")
	stream := func(stdin string, args ...string) outcome {
		return runWith(t, Options{Stdin: strings.NewReader(stdin)}, append([]string{"stream"}, args...)...)
	}
	got := stream("2\n\"x\"\n4\n", "task.py:half", "--pool", "cpu", "--slots", "1")
	require.Equal(t, exitFailed, got.code)
	lines := strings.Split(got.stdout, "\n")
	require.Equal(t, []string{`{"index":0,"value":1.0}`, `{"index":2,"value":2.0}`}, []string{lines[0], lines[2]})
	require.Contains(t, got.stderr, "3 items, 1 failed\n  item 1 = \"x\": task_error")

	got = stream("a b\nc\n", "--pool", "cpu", "--lines", "--output", "text", "--", "cat")
	require.Equal(t, outcome{exitOK, "{\"index\":0,\"value\":\"\\\"a b\\\"\"}\n{\"index\":1,\"value\":\"\\\"c\\\"\"}\n", "2 items, 0 failed\n"}, got)

	got = stream("1\n{\n2\n", "task.py:half", "--quiet")
	require.Equal(t, exitFailed, got.code)
	lines = strings.Split(got.stdout, "\n")
	require.Equal(t, []string{`{"index":0,"value":0.5}`, `{"index":2,"value":1.0}`}, []string{lines[0], lines[2]})
	require.Contains(t, lines[1], `{"index":1,"fault":{"kind":"bad_input","item":"{","op":"read"`)
	require.Contains(t, lines[1], "standard input:2: not JSON")

	got = stream("a\n1\n\"2\n3\"x\n4\n", "--pool", "cpu", "--delimiter", ",", "--", "cat")
	require.Equal(t, exitUsage, got.code)
	require.Equal(t, "{\"index\":0,\"value\":{\"a\":1}}\n", got.stdout, "what came before has its result")
	require.Equal(t, "1 items, 0 failed\ngpumux: standard input: the row from line 3 to 4: extraneous or missing \" in quoted-field; put the cell in double "+
		"quotes and double each quote inside it; what follows was not read, and the results of what came before are written\n", got.stderr)

	write(t, "torn.jsonl.gz", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x00\x05\x00\xfa\xff1\n2\n3") // a stored block without its end
	got = stream("", "task.py:half", "--in", "torn.jsonl.gz", "--out", "results.jsonl", "--quiet")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "torn.jsonl.gz: the gzip archive is cut off")
	kept, err := os.ReadFile("results.jsonl")
	require.NoError(t, err)
	require.Equal(t, "{\"index\":0,\"value\":0.5}\n{\"index\":1,\"value\":1.0}\n", string(kept))

	got = stream("{\"id\":\"a\",\"n\":1}\n[]\n", "--key", "id", "--with-item", "--", "cat")
	require.Equal(t, "{\"index\":0,\"value\":{\"id\":\"a\",\"n\":1},\"key\":\"a\",\"item\":{\"id\":\"a\",\"n\":1}}\n"+
		"{\"index\":1,\"value\":[],\"key\":null,\"item\":[]}\n", got.stdout)

	got = stream("1\n", "raises.py:f")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "no model here")
	require.Contains(t, got.stderr, "traceback:")

	for says, args := range map[string][]string{
		"TASK is missing":       {},
		"names several pools":   {"task.py:half", "--pool", "gpu,cpu"},
		"--attempts 0":          {"task.py:half", "--attempts", "0"},
		"the first item is no":  {"task.py:half", "--key", "id"},
		"unknown flag: --local": {"task.py:half", "--local"},
	} {
		got = stream("1\n", args...)
		require.Equal(t, exitUsage, got.code, says)
		require.Contains(t, got.stderr, says)
	}
}

// inputEnder is standard error that ends the input when it gets what the test waits for.
type inputEnder struct {
	bytes.Buffer
	on    string
	input *io.PipeWriter
}

func (e *inputEnder) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(e.on)) {
		e.input.Close()
	}
	return e.Buffer.Write(p)
}

// A map that waits for the end of its input says so, and what does not wait.
func TestMap_SaysThatItReadsItsInputToTheEnd(t *testing.T) {
	lonely(t)
	reader, writer := io.Pipe()
	to := &inputEnder{on: "`gpumux stream` runs items as they come", input: writer}
	go func() { _, _ = writer.Write([]byte("1\n")) }()
	code := exitCode(Main(Options{Args: []string{"map", "embed", "--in", "-"}, Stdin: reader, Stdout: io.Discard, Stderr: to}))
	require.Equal(t, exitUnavailable, code, "there is no server")
	require.Contains(t, to.String(), to.on)
}

// Only GPUs can be joined to one slot.
func TestStream_ASlotOfSeveralGPUs(t *testing.T) {
	lonely(t)
	got := runWith(t, Options{Stdin: strings.NewReader("1\n")}, "stream", "--pool", "cpu", "--gpus-per-slot", "2", "--", "cat")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "--gpus-per-slot: 2, but cpu")
}

// A task here sees where the shell keeps models, not its credentials, and that is said.
func TestStream_TheShellsVariables(t *testing.T) {
	lonely(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, name := range slices.Concat(local.PassedOn(nil)) {
		t.Setenv(name, "") // puts it back
		require.NoError(t, os.Unsetenv(name))
	}
	t.Setenv("HF_HOME", "/models")
	t.Setenv("HF_TOKEN", "hf_secret")
	stream := func(args ...string) outcome {
		args = append(append([]string{"stream", "--output", "text"}, args...), "--", "sh", "-c", `echo "$HF_HOME $HF_TOKEN"`)
		return runWith(t, Options{Stdin: strings.NewReader("1\n")}, args...)
	}
	got := stream()
	require.Contains(t, got.stdout, `"/models "`)
	require.Contains(t, got.stderr, "note: the task does not see HF_TOKEN of this environment; to pass on: --pass-env HF_TOKEN\n")
	got = stream("--pass-env", "HF_TOKEN")
	require.Contains(t, got.stdout, `"/models hf_secret"`)
	require.NotContains(t, got.stderr, "does not see")
}

// A start that takes longer than it may says which flag is about it.
func TestStream_AStartThatTakesTooLong(t *testing.T) {
	lonely(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	write(t, "slow.py", "print('loading the weights', flush=True)\nimport threading\nthreading.Event().wait()\ndef f(x): return x\n")
	stream := func(limit string) outcome {
		return runWith(t, Options{Stdin: strings.NewReader("1\n")}, "stream", "slow.py:f", "--pool", "cpu", "--start-timeout", limit)
	}
	got := stream("4s")
	require.NotEqual(t, exitOK, got.code)
	require.Contains(t, got.stderr, "the task process was not ready after 4s")
	require.Contains(t, got.stderr, "--start-timeout")
	require.Contains(t, got.stderr, "loading the weights")
	got = stream("-1s")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "--start-timeout: is negative; leave it out for the default")
}
