package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/local"
)

// Options of Main.
type Options = app.Options

// Main runs one command and returns its exit code.
func Main(o Options) int {
	a := app.New(o)
	ctx, release := a.Interruptible()
	defer release()
	root := rootCommand(a)
	root.SetArgs(a.Args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Console)
	var command *cobra.Command
	var err error
	over := make(chan struct{})
	go func() {
		defer close(over)
		command, err = root.ExecuteContextC(ctx)
		a.Console.Close()
	}()
	select {
	case <-over:
	case <-a.Hard.Done():
		select {
		case <-over:
		case <-time.After(lastGrace):
			return app.ExitInterrupted
		}
	}
	if err == nil {
		return app.ExitOK
	}
	if !a.Ran { // cobra's own: unknown command, wrong number of arguments, unknown flag
		err = app.Usage("%s", err)
	}
	var exit app.Exit
	if errors.Is(context.Cause(ctx), app.ErrInterrupted) && !errors.As(err, &exit) {
		err = app.ErrInterrupted // whatever the signal made fail
	}
	if !errors.As(err, &exit) && !errors.Is(err, app.ErrInterrupted) {
		a.Console.Say("gpumux: %s", strings.TrimRight(err.Error(), "\n"))
		if errors.As(err, new(*local.MistakeError)) {
			fmt.Fprintf(a.Console, "see `%s --help`\n", command.CommandPath())
		}
	}
	return exitCode(err)
}

// lastGrace is how long a command may take to end after the second signal, wherever it is. What it started dies with the process.
const lastGrace = time.Second
