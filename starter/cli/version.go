package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  gpumux version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			kind := "client and worker"
			if a.Local != nil {
				kind = "all in one, with the Temporal server"
			}
			_, err := fmt.Fprintf(a.Stdout, "gpumux %s (%s, %s %s/%s)\n", a.Version, kind, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
