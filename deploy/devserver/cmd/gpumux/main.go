// Command gpumux is the all-in-one binary: client, worker, Temporal server and Web UI.
package main

import (
	"context"
	"os"

	"github.com/gpumux/gpumux/deploy/devserver"
	"github.com/gpumux/gpumux/starter/cli"
)

// version is set by the linker.
var version = "development"

func main() { os.Exit(cli.Main(cli.Options{Version: version, Local: embedded{}})) }

// embedded starts the server in this process.
type embedded struct{}

// Start is cli.Local's.
func (embedded) Start(ctx context.Context, o cli.LocalOptions) (cli.Server, error) {
	server, err := devserver.Start(ctx, devserver.Options{
		Data: o.Data, Port: o.Port, UIPort: o.UIPort, Headless: o.Headless, Token: o.Token, UIHosts: o.UIHosts, Log: o.Log,
	})
	if err != nil {
		return nil, err // and no server in the interface
	}
	return server, nil
}
