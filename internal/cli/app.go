package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"

	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"

	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/internal/text"
)

// Options of Main. The zero value is gpumux-worker.
type Options struct {
	// Local starts the embedded server for `dev` and --local. Default: there is none.
	Local func(ctx context.Context, o local.ServerOptions) (local.Server, error)
	// Args are the arguments after the program's name. Default os.Args[1:].
	Args []string
	// Stdin, Stdout and Stderr default to this process's.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Version is printed by `gpumux --version`. Default: that of the module that was built.
	Version string
	// Signals interrupt the command. Default: SIGINT and SIGTERM of this process.
	Signals <-chan os.Signal
}

// app is one run of the program. A command may correct what its flags said.
type app struct {
	// terminal is standard output without escaping, for top to draw on.
	terminal io.Writer
	Options
	console *report.Console
	// ran reports whether the command's own code was reached; else cobra refused it.
	ran bool
	// hard is cancelled by the second signal, which waits for nothing.
	hard context.Context

	// address to storeURL are the flags of the connection.
	address, namespace, connectionFile, storeURL string
	// verbose shows the log of what runs in this process.
	verbose bool
}

func newApp(o Options) *app {
	if o.Args == nil {
		o.Args = os.Args[1:]
	}
	o.Stdin = cmp.Or[io.Reader](o.Stdin, os.Stdin)
	o.Stdout = cmp.Or[io.Writer](o.Stdout, os.Stdout)
	o.Stderr = cmp.Or[io.Writer](o.Stderr, os.Stderr)
	terminal := o.Stdout
	if report.IsTerminal(o.Stdout) {
		// A file or a program gets what tasks returned as it is.
		o.Stdout = report.Visible(o.Stdout)
	}
	if o.Version == "" {
		if build, ok := debug.ReadBuildInfo(); ok {
			o.Version = build.Main.Version
		}
	}
	// Without a name the SDK hashes the whole binary at the start of a worker.
	worker.SetBinaryChecksum("gpumux " + o.Version)
	a := &app{Options: o, terminal: terminal, console: report.NewConsole(o.Stderr)}
	a.console.Phrase = a.phrase
	return a
}

// interruptible is the context that the first signal ends with errInterrupted; the second
// ends a.hard.
func (a *app) interruptible() (context.Context, func()) {
	signals := a.Signals
	if signals == nil {
		received := make(chan os.Signal, 2)
		signal.Notify(received, os.Interrupt, syscall.SIGTERM)
		if !signal.Ignored(syscall.SIGHUP) { // as below nohup
			signal.Notify(received, syscall.SIGHUP)
		}
		signals = received
	}
	ctx, interrupt := context.WithCancelCause(context.Background())
	hard, kill := context.WithCancelCause(context.Background())
	a.hard = hard
	go func() {
		<-signals
		interrupt(errInterrupted)
		for <-signals == syscall.SIGHUP { // the kernel and the shell may both say that the terminal is gone
		}
		kill(errInterrupted)
	}()
	return ctx, func() { interrupt(nil); kill(nil) }
}

// newLog is a log for people: warnings, or with verbose everything from info up.
func newLog(to io.Writer, verbose bool) *zap.Logger {
	level := zapcore.WarnLevel
	if verbose {
		level = zapcore.InfoLevel
	}
	encoding := zap.NewDevelopmentEncoderConfig()
	encoding.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05")
	encoding.CallerKey, encoding.StacktraceKey = "", ""
	lines := zapcore.NewConsoleEncoder(encoding)
	return zap.New(zapcore.NewCore(prose{lines, lines}, zapcore.AddSync(to), level))
}

// log is the log of server and workers in this process. Calm leaves out warnings about
// single items, since the results have them.
func (a *app) log(calm bool) *zap.Logger {
	log := newLog(a.console, a.verbose)
	if calm && !a.verbose {
		log = log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	}
	return log
}

func (a *app) needLocal(what string) error {
	if a.Local == nil {
		return usage("%s: this gpumux is built without the embedded server; use the all-in-one binary (make build), or connect with --address", what)
	}
	return nil
}

func (a *app) localOptions(calm bool) local.Options {
	return local.Options{Server: a.Local, ServerOptions: local.ServerOptions{Log: a.log(calm)}, Version: a.Version,
		Command: append([]string{"gpumux"}, a.Args...), Say: func(text string) { a.console.Say("note: %s", text) }}
}

func connectionOf(s *local.Session) *connection {
	return &connection{Starter: s.Starter, address: s.Server.Address(), ui: s.Server.UI()}
}

// prose is an encoder for people. A fault says in words what its fields repeat, so it
// goes without them.
type prose struct {
	zapcore.Encoder
	bare zapcore.Encoder // without a logger's fields
}

func (p prose) Clone() zapcore.Encoder { return prose{p.Encoder.Clone(), p.bare} }

func (p prose) EncodeEntry(e zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(values)
	}
	if fault := values.Fields["fault"]; fault != nil {
		id, index := values.Fields["map"], values.Fields["index"]
		e.Message += text.When(id != nil, ": map %v", id) + text.When(index != nil, ", item %v = %v", index, values.Fields["item"]) +
			fmt.Sprintf(": %v", fault)
		return p.bare.EncodeEntry(e, nil)
	}
	return p.Encoder.EncodeEntry(e, fields)
}

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
