// Package app has what the commands of gpumux share: streams, the connection and its
// flags, exit codes, logs.
//
// It owns how a command finds its server and how it is interrupted. It has no command of
// its own. Callers end what Interruptible and Connect return.
package app

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/screen"
)

// Options of cli.Main. The zero value is gpumux-worker.
type Options struct {
	// Local starts the embedded server for `dev` and --local. Default: there is none.
	Local func(ctx context.Context, o local.ServerOptions) (local.Server, error)
	// Args are the arguments after the program's name. Default os.Args[1:].
	Args []string
	// Stdin, Stdout and Stderr default to this process's.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Version is printed by `gpumux version`. Default "development".
	Version string
	// Signals interrupt the command. Default: SIGINT and SIGTERM of this process.
	Signals <-chan os.Signal
}

// App is one run of the program. A command may correct what its flags said.
type App struct {
	// Terminal is standard output without escaping, for top to draw on.
	Terminal io.Writer
	Options
	Console *screen.Console
	// Ran reports whether the command's own code was reached; else cobra refused it.
	Ran bool
	// Hard is cancelled by the second signal, which waits for nothing.
	Hard context.Context

	// Address to KeysPath are the flags of the connection.
	Address, Namespace, StoreURL, KeysPath string
	// Verbose shows the log of what runs in this process.
	Verbose bool
}

// New puts the defaults in place.
func New(o Options) *App {
	if o.Args == nil {
		o.Args = os.Args[1:]
	}
	o.Stdin = cmp.Or[io.Reader](o.Stdin, os.Stdin)
	o.Stdout = cmp.Or[io.Writer](o.Stdout, os.Stdout)
	o.Stderr = cmp.Or[io.Writer](o.Stderr, os.Stderr)
	terminal := o.Stdout
	if screen.IsTerminal(o.Stdout) {
		// A file or a program gets what tasks returned as it is.
		o.Stdout = screen.Visible(o.Stdout)
	}
	o.Version = cmp.Or(o.Version, "development")
	// Without a name the SDK hashes the whole binary at the start of a worker.
	worker.SetBinaryChecksum("gpumux " + o.Version)
	a := &App{Options: o, Terminal: terminal, Console: screen.NewConsole(o.Stderr)}
	a.Console.Phrase = a.Phrase
	return a
}

// Interruptible is the context that the first signal ends with ErrInterrupted; the second
// ends a.Hard. Its goroutine ends with the returned function.
func (a *App) Interruptible() (context.Context, func()) {
	signals := a.Signals
	stop := func() {}
	if signals == nil {
		own := make(chan os.Signal, 2)
		signal.Notify(own, os.Interrupt, syscall.SIGTERM)
		signals, stop = own, func() { signal.Stop(own) }
	}
	ctx, interrupt := context.WithCancelCause(context.Background())
	hard, kill := context.WithCancelCause(context.Background())
	a.Hard = hard
	over := make(chan struct{})
	go func() {
		for _, end := range []context.CancelCauseFunc{interrupt, kill} {
			select {
			case <-signals:
				end(ErrInterrupted)
			case <-over:
				return
			}
		}
	}()
	return ctx, func() {
		stop()
		close(over)
		interrupt(nil)
		kill(nil)
	}
}

// NewLog is a log for people: warnings, or with verbose everything from info up.
func NewLog(to io.Writer, verbose bool) *zap.Logger {
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

// Log is the log of server and workers in this process. Calm leaves out warnings about
// single items, since the results have them.
func (a *App) Log(calm bool) *zap.Logger {
	log := NewLog(a.Console, a.Verbose)
	if calm && !a.Verbose {
		log = log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	}
	return log
}

// NeedLocal returns an error where this binary has no server.
func (a *App) NeedLocal(what string) error {
	if a.Local == nil {
		return Usage("%s: this gpumux is built without the embedded server; use the all-in-one binary (make build), or connect with --address", what)
	}
	return nil
}

// LocalOptions are for a server and a worker in this process.
func (a *App) LocalOptions(calm bool) local.Options {
	return local.Options{Server: a.Local, ServerOptions: local.ServerOptions{Log: a.Log(calm)}, Keys: a.KeysPath, Version: a.Version,
		Command: append([]string{"gpumux"}, a.Args...), Say: func(text string) { a.Console.Say("note: %s", text) }}
}

// ConnectionOf is the connection to a server in this process.
func ConnectionOf(s *local.Session) *Connection {
	return &Connection{Starter: s.Starter, Address: s.Server.Address(), UI: s.Server.UI(), Key: s.Server.Key()}
}
