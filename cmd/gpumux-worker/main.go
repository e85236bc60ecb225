// Command gpumux-worker is gpumux without the embedded server: a client and a worker for
// a Temporal that runs elsewhere.
package main

import (
	"os"

	"github.com/gpumux/gpumux/internal/cli"
)

// version is set by the linker, except with go install.
var version string

func main() { os.Exit(cli.Main(cli.Options{Version: version})) }
