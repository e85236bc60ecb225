package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux/starter/cli/screen"
	"github.com/gpumux/gpumux/starter/local"
)

// Options of Main. The zero value is the lean binary on this process's arguments and streams.
type Options struct {
	// Local starts the embedded server for `dev` and --local. Default: none, and both say which binary has it.
	Local func(ctx context.Context, o local.ServerOptions) (local.Server, error)
	// Args are the arguments after the program's name. Default os.Args[1:].
	Args []string
	// Stdin, Stdout and Stderr default to this process's.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Version is what `gpumux version` says. Default "development".
	Version string
	// Signals interrupt the command. Default: SIGINT and SIGTERM of this process.
	Signals <-chan os.Signal
}

// app is one run of the program. Its fields are set before the command runs.
type app struct {
	// terminal is standard output as it is, for what draws on it.
	terminal io.Writer
	Options
	console *screen.Console
	// ran says that the command's own code was reached.
	ran bool
	// hard is cancelled by the second signal; what is still running then is left to die.
	hard context.Context

	address, namespace string
	storeURL           string
	keysPath           string
	verbose            bool
}

// Main runs one command and returns its exit code.
func Main(o Options) int {
	a := newApp(o)
	ctx, release := a.interruptible()
	defer release()
	root := a.root()
	root.SetArgs(a.Args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.console)
	var command *cobra.Command
	var err error
	over := make(chan struct{})
	go func() {
		defer close(over)
		command, err = root.ExecuteContextC(ctx)
		a.console.Close()
	}()
	select {
	case <-over:
	case <-a.hard.Done():
		select {
		case <-over:
		case <-time.After(lastGrace):
			return ExitInterrupted
		}
	}
	if err == nil {
		return ExitOK
	}
	if !a.ran { // cobra's own: unknown command, wrong number of arguments, unknown flag
		err = usage("%s", err)
	}
	var exit exitError
	if errors.Is(context.Cause(ctx), errInterrupted) && !errors.As(err, &exit) {
		err = errInterrupted // whatever the signal made fail
	}
	if !errors.As(err, &exit) && !errors.Is(err, errInterrupted) {
		a.console.Say("gpumux: %s", strings.TrimRight(err.Error(), "\n"))
		if errors.As(err, new(*local.Mistake)) {
			fmt.Fprintf(a.console, "see `%s --help`\n", command.CommandPath())
		}
	}
	return exitCode(err)
}

// lastGrace is how long a command may take to end after the second signal, wherever it is. What it started dies with the process.
const lastGrace = time.Second

// newApp puts the defaults in place.
func newApp(o Options) *app {
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
	// Without a name for the binary the SDK reads and hashes the whole file at the start of a worker.
	worker.SetBinaryChecksum("gpumux " + o.Version)
	a := &app{Options: o, terminal: terminal, console: screen.NewConsole(o.Stderr)}
	a.console.Complete = a.pasted
	return a
}

// interruptible is the context that the first signal ends with errInterrupted; the second ends a.hard. Its goroutine ends
// with the returned function.
func (a *app) interruptible() (context.Context, func()) {
	signals := a.Signals
	stop := func() {}
	if signals == nil {
		own := make(chan os.Signal, 2)
		signal.Notify(own, os.Interrupt, syscall.SIGTERM)
		signals, stop = own, func() { signal.Stop(own) }
	}
	ctx, interrupt := context.WithCancelCause(context.Background())
	hard, kill := context.WithCancelCause(context.Background())
	a.hard = hard
	over := make(chan struct{})
	go func() {
		for _, end := range []context.CancelCauseFunc{interrupt, kill} {
			select {
			case <-signals:
				end(errInterrupted)
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
