// Command gpumux is the product: client, worker, and an embedded Temporal with its Web
// UI.
package main

import (
	"context"
	"os"

	"github.com/gpumux/gpumux/cmd/gpumux/devserver"
	"github.com/gpumux/gpumux/internal/cli"
	"github.com/gpumux/gpumux/internal/local"
)

// version is set by the linker, except with go install.
var version string

func main() { os.Exit(cli.Main(cli.Options{Version: version, Local: serve})) }

// serve is local.Options.Server.
func serve(ctx context.Context, o local.ServerOptions) (local.Server, error) {
	server, err := devserver.Start(ctx, devserver.Options(o))
	if err != nil {
		return nil, err // and no server in the interface
	}
	return server, nil
}
