// Command gpumux is the lean binary: a client and a worker for a Temporal that runs
// elsewhere. The all-in-one binary with the server inside is devserver/cmd/gpumux.
package main

import (
	"os"

	"github.com/gpumux/gpumux/internal/cli"
)

// version is set by the linker.
var version = "development"

func main() { os.Exit(cli.Main(cli.Options{Version: version})) }
