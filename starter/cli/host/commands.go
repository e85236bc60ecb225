package host

import (
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter/cli/app"
)

// Commands are those of the package, in the order of the help.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{workerCommand(a), workersCommand(a), topCommand(a), tasksCommand(a), codecServerCommand(a), gpusCommand(a),
		doctorCommand(a), benchCommand(a)}
}
