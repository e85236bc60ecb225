package host

import (
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter/cli/app"
)

// commands are those of the package.
type commands struct{ *app.App }

// Commands are those of the package, in the order of the help.
func Commands(shared *app.App) []*cobra.Command {
	a := &commands{shared}
	return []*cobra.Command{a.workerCommand(), a.workersCommand(), a.topCommand(), a.tasksCommand(), a.codecServerCommand(), a.gpusCommand(),
		a.doctorCommand(), a.benchCommand()}
}
