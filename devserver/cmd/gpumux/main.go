// Command gpumux is the all-in-one binary: client, worker, Temporal server and Web UI.
package main

import (
	"os"

	"github.com/gpumux/gpumux/devserver/internal/embedded"
	"github.com/gpumux/gpumux/internal/cli"
)

// version is set by the linker.
var version = "development"

func main() { os.Exit(cli.Main(cli.Options{Version: version, Local: embedded.Start})) }
