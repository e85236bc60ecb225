// Package host has the commands about servers, workers and the machine.
//
// It owns what they ask and print. It never runs a map of a user's. A command ends with its context.
package host

import (
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter/cli/app"
)

// host has the commands.
type host struct{ *app.App }

// Commands are those of the package, in the order of the help.
func Commands(shared *app.App) []*cobra.Command {
	a := &host{shared}
	return []*cobra.Command{a.workerCommand(), a.workersCommand(), a.topCommand(), a.tasksCommand(), a.codecServerCommand(), a.gpusCommand(),
		a.doctorCommand(), a.benchCommand()}
}
