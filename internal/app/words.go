package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/text"
)

// hinted is a command in a text, as all hints write them.
var hinted = regexp.MustCompile("`gpumux ([a-z]+)([^`\n]*)`")

// aboutServer are the commands that talk to a server; withStore take --store too.
var (
	aboutServer = []string{"map", "run", "ls", "show", "faults", "logs", "wait", "results", "pause", "resume", "cancel", "retry", "workers",
		"tasks", "doctor", "schedule", "prune"}
	withStore = []string{"map", "run", "faults", "logs", "results", "retry", "doctor", "prune"}
)

// flagWords are what libraries say to do, each followed by the command line's words.
var flagWords = []string{
	"give another ID", "give another --id", "give an ID of its own", "give an ID of its own with --id", "with the ID ", "with --id ",
	"give the pool ", "give --pool ", "give the pools ", "give --pool ",
	"without a retry", "without --retry", "run what failed again", "run what failed again with --retry",
	"give the workers' store", "give the workers' store with --store URL or GPUMUX_STORE",
	"give the keys (codec.keys in the worker's file)", "give the keys (codec.keys in the worker's file, --keys or GPUMUX_KEYS elsewhere)",
	"give the workers' keys", "give the workers' keys with --keys or GPUMUX_KEYS",
	"give its address or TEMPORAL_ADDRESS", "give --address or TEMPORAL_ADDRESS, or run this map alone with --local",
	"give another namespace", "give --namespace", "of a private `gpumux dev`", "of `gpumux dev --private`",
	"give another port for the server", "give another with --port", "give another port for the Web UI", "give another with --ui-port",
	"give another folder", "give another with --data", "if it was given an ID or a folder", "if it has an --id or --data",
	"give another Python", "give another with --python", "measure the CPU", "measure the CPU with --pool cpu",
	"measure the workload light", "measure --workloads light",
	"give the delimiter ", "give --delimiter ", "name the columns to read", "name the columns to read with --columns",
	"raise the task's timeout", "raise the task's timeout (--timeout)",
}

var inFlags = strings.NewReplacer(flagWords...)

// InFlags is a text of a library in the words of the command line. The commands in it
// have the flags that this one was given to find its server, so that they can be pasted.
func (a *App) InFlags(text string) string {
	return hinted.ReplaceAllStringFunc(inFlags.Replace(text), func(found string) string {
		parts := hinted.FindStringSubmatch(found)
		return "`" + a.Command(parts[1]+parts[2]) + "`"
	})
}

// Command is a command line of gpumux, for the server of this one.
func (a *App) Command(words string) string {
	name, _, _ := strings.Cut(words, " ")
	var flags []string
	add := func(flag, value string) {
		if value != "" && !strings.Contains(words, flag) {
			flags = append(flags, flag, value)
		}
	}
	if slices.Contains(aboutServer, name) {
		add("--address", a.Address)
		add("--namespace", a.Namespace)
	}
	if slices.Contains(withStore, name) && a.StoreURL != os.Getenv("GPUMUX_STORE") {
		add("--store", a.StoreURL)
	}
	if len(flags) == 0 {
		return "gpumux " + words
	}
	return "gpumux " + words + " " + ShellLine(flags)
}

// ShellLine is a command as a shell takes it.
func ShellLine(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return !strings.ContainsRune(plain, r) }) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}

const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%"

// PrintJSON writes v for programs.
func PrintJSON(to io.Writer, v any) error {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(v); err != nil {
		return err
	}
	_, err := to.Write(text.Unescaped(b.Bytes()))
	return err
}

// Exit codes.
const (
	// ExitOK: every item succeeded, or the command did what it was asked.
	ExitOK = 0
	// ExitFailed: items failed, or what was asked for is not there.
	ExitFailed = 1
	// ExitUsage: the command or its input cannot work as given.
	ExitUsage = 2
	// ExitUnavailable: what is needed could not be reached or started.
	ExitUnavailable = 3
	// ExitBroken: the map failed as a whole, or the command did.
	ExitBroken = 4
	// ExitInterrupted: a signal ended the command.
	ExitInterrupted = 130
)

// Usage is one mistake in the command line.
func Usage(format string, args ...any) error {
	return &local.MistakeError{Problems: []string{fmt.Sprintf(format, args...)}}
}

// Unavailable is about what could not be reached or started.
func Unavailable(err error) error { return &local.UnavailableError{Err: err} }

// Exit ends the command with a code; its message has been printed.
type Exit int

// Error is for logs.
func (e Exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// ErrInterrupted is the cause of a context that a signal ended.
var ErrInterrupted = errors.New("interrupted")

// Mistakes collects what is wrong with a command line.
type Mistakes []string

// Add adds one.
func (m *Mistakes) Add(format string, args ...any) { *m = append(*m, fmt.Sprintf(format, args...)) }

// When adds one if it is made.
func (m *Mistakes) When(made bool, format string, args ...any) {
	if made {
		m.Add(format, args...)
	}
}

// Err is all of them as one error, or nil.
func (m Mistakes) Err() error {
	if len(m) == 0 {
		return nil
	}
	return &local.MistakeError{Problems: m}
}
