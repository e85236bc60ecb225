package rruntime

import (
	"embed"
	"fmt"
	"path/filepath"

	"github.com/gpumux/gpumux/workers/slot/unpack"
)

//go:embed gpumux/*.R
var files embed.FS

// Install writes the runtime below dir, as unpack.Files does, and returns the path of its main.R, to be started as `Rscript main.R` with
// the wire on descriptor 3.
func Install(dir string) (string, error) {
	home, err := unpack.Files(dir, files)
	if err != nil {
		return "", fmt.Errorf("install the R runtime: %w", err)
	}
	return filepath.Join(home, "gpumux", "main.R"), nil
}
