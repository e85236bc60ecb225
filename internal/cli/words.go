package cli

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

var hinted = regexp.MustCompile("`gpumux ([^`\n]*)`")

var takesStore = map[string]bool{"map": true, "llm": true, "show": true, "results": true, "retry": true, "doctor": true,
	"prune": true, "ls": false, "wait": false, "pause": false, "resume": false, "cancel": false, "workers": false}

// flagWords has the flags for what packages below name in plain words.
var flagWords = strings.NewReplacer("start: in the worker's file", "start: in the worker's file, or --start-timeout with --local",
	"devices: cpu runs it", "--devices cpu runs it")

// phrase puts what other packages say into words of this command: it names flags, and
// gives commands in the text the flags that find this one's server.
func (a *app) phrase(text string) string {
	return hinted.ReplaceAllStringFunc(flagWords.Replace(text), func(found string) string {
		return "`" + a.command(hinted.FindStringSubmatch(found)[1]) + "`"
	})
}

func (a *app) command(words string) string {
	name, _, _ := strings.Cut(words, " ")
	store, asksServer := takesStore[name]
	line := "gpumux " + words
	add := func(flag, value string) {
		if value != "" && !strings.Contains(words, flag) {
			line += " " + flag + " " + shellLine([]string{value})
		}
	}
	if asksServer {
		add("--connect", a.connectionFile)
		add("--address", a.address)
		add("--namespace", a.namespace)
	}
	if store && a.storeURL != os.Getenv("GPUMUX_STORE") {
		add("--store", a.storeURL)
	}
	return line
}

func shellLine(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return !strings.ContainsRune(shellSafe, r) }) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}

const shellSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%"

func printJSON(to io.Writer, v any) error {
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

// exitCode ends the command with a code; its message has been printed.
type exitCode int

const (
	exitOK          exitCode = 0   // every item succeeded, or the command did what it was asked
	exitFailed      exitCode = 1   // items failed, or what was asked for is not there
	exitUsage       exitCode = 2   // the command or its input cannot work as given
	exitUnavailable exitCode = 3   // what is needed could not be reached or started
	exitBroken      exitCode = 4   // the map failed as a whole, or the command did
	exitInterrupted exitCode = 130 // a signal ended the command
)

func (e exitCode) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func usage(format string, args ...any) error {
	return &local.MistakeError{Problems: []string{fmt.Sprintf(format, args...)}}
}

func unavailable(err error) error { return &local.UnavailableError{Err: err} }

var errInterrupted = errors.New("interrupted")

type mistakes []string

func (m *mistakes) add(format string, args ...any) { *m = append(*m, fmt.Sprintf(format, args...)) }

func (m *mistakes) when(made bool, format string, args ...any) {
	if made {
		m.add(format, args...)
	}
}

func (m mistakes) err() error {
	if len(m) == 0 {
		return nil
	}
	return &local.MistakeError{Problems: m}
}
