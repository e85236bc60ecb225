package gpucheck

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/mps"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// mpsAnswers is what the daemon is expected to say, word for word, after NVIDIA's
// documentation where that says so.
//
//go:embed testdata/mps.txt
var mpsAnswers string

// transcript is what was asked of a daemon and what it answered, with names in the place
// of process numbers.
type transcript struct {
	t     *testing.T
	names map[string]string // by number
	text  strings.Builder
}

var processNumber = regexp.MustCompile(`\b\d+\b`)

// named has names in the place of numbers.
func (s *transcript) named(text string) string {
	return processNumber.ReplaceAllStringFunc(text, func(n string) string { return cmp.Or(s.names[n], n) })
}

// ask hands the daemon a command in which names stand for process numbers.
func (s *transcript) ask(d mps.Daemon, command string) {
	cmd := exec.Command(mps.Program)
	cmd.Env = append(os.Environ(), d.Environ()...)
	words := strings.Fields(command)
	for number, name := range s.names {
		for i, word := range words {
			if word == name {
				words[i] = number
			}
		}
	}
	cmd.Stdin = strings.NewReader(strings.Join(words, " ") + "\n")
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(s.t, err)
	}
	lines := strings.FieldsFunc(s.named(string(output)), func(r rune) bool { return r == '\n' })
	slices.Sort(lines) // clients have no order
	fmt.Fprintf(&s.text, "> %s\n", command)
	for _, line := range lines {
		fmt.Fprintln(&s.text, strings.TrimSpace(line))
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		fmt.Fprintf(&s.text, "(exit status %d)\n", code)
	}
}

// The daemon answers word for word what is written down. A difference is news: see what
// in gpumux reads that answer, then write it down.
func wording(t *testing.T, h gputest.MPSHost) {
	s := &transcript{t: t, names: map[string]string{}}
	s.ask(mps.Daemon{Pipe: t.TempDir()}, "get_server_list")
	d := h.Start(t)
	s.ask(d.Daemon, "get_server_list")
	s.ask(d.Daemon, "get_default_active_thread_percentage")
	first, _ := h.Join(t, d.Daemon)
	second, _ := h.Join(t, d.Daemon)
	for name, pid := range map[string]int{"SERVER": server(t, d), "FIRST": first.PID, "SECOND": second.PID} {
		s.names[strconv.Itoa(pid)] = name
	}
	for _, command := range []string{"get_server_list", "get_server_status SERVER", "get_server_status 1", "get_client_list SERVER"} {
		s.ask(d.Daemon, command)
	}
	first.Kill()
	before := len(d.Output())
	require.Equal(t, "running", second.Say("illegal"))
	require.Equal(t, "error 700", second.Hear())
	rig.Wait(t, func() bool { return d.Status(server(t, d)) == "FAULT" }, gputest.MPSPatience, 20*time.Millisecond)
	s.ask(d.Daemon, "get_server_status SERVER")
	for line := range strings.Lines(d.Output()[before:]) {
		t.Logf("figure: of a fault the server's log says: %s", s.named(stamp.ReplaceAllString(strings.TrimSpace(line), "")))
	}
	second.Kill()
	s.ask(d.Daemon, "quit")
	require.Equal(t, mpsAnswers, s.text.String(), "testdata/mps.txt")
}

// stamp is the time at which a line of a log was written.
var stamp = regexp.MustCompile(`^\[[-\d]+ [:.\d]+ +`)
