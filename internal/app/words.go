package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/text"
)

// hinted matches a command in a text.
var hinted = regexp.MustCompile("`gpumux ([^`\n]*)`")

// takesStore has the commands that talk to a server, and whether they take --store.
var takesStore = map[string]bool{"map": true, "run": true, "show": true, "logs": true, "results": true, "retry": true, "doctor": true,
	"prune": true, "ls": false, "wait": false, "pause": false, "resume": false, "cancel": false, "workers": false, "tasks": false}

// inFlags has the flags for what packages below name in plain words.
var inFlags = strings.NewReplacer("the workers' keys", "the workers' keys (--keys or GPUMUX_KEYS)",
	"start: in the worker's file", "start: in the worker's file, or --start-timeout with --local",
	"devices: cpu runs it", "--devices cpu runs it")

// Phrase puts what other packages say into words of this command: it names flags, and
// gives commands in the text the flags that find this one's server.
func (a *App) Phrase(text string) string {
	return hinted.ReplaceAllStringFunc(inFlags.Replace(text), func(found string) string {
		return "`" + a.Command(hinted.FindStringSubmatch(found)[1]) + "`"
	})
}

// Command returns a command line of gpumux, with the flags that find this server.
func (a *App) Command(words string) string {
	name, _, _ := strings.Cut(words, " ")
	store, asksServer := takesStore[name]
	line := "gpumux " + words
	add := func(flag, value string) {
		if value != "" && !strings.Contains(words, flag) {
			line += " " + flag + " " + ShellLine([]string{value})
		}
	}
	if asksServer {
		add("--address", a.Address)
		add("--namespace", a.Namespace)
	}
	if store && a.StoreURL != os.Getenv("GPUMUX_STORE") {
		add("--store", a.StoreURL)
	}
	return line
}

// ShellLine quotes a command for a shell.
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

// Usage returns an error about one mistake in the command line.
func Usage(format string, args ...any) error {
	return &local.MistakeError{Problems: []string{fmt.Sprintf(format, args...)}}
}

// Unavailable returns an error about something that could not be reached or started.
func Unavailable(err error) error { return &local.UnavailableError{Err: err} }

// Exit ends the command with a code; its message has been printed.
type Exit int

// Error is for logs.
func (e Exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// ErrInterrupted is the cause of a context that a signal ended.
var ErrInterrupted = errors.New("interrupted")

// Mistakes collects what is wrong with a command line.
type Mistakes []string

// Add adds a mistake.
func (m *Mistakes) Add(format string, args ...any) { *m = append(*m, fmt.Sprintf(format, args...)) }

// When adds a mistake if it was made.
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
