package pyruntime

import (
	"embed"
	"fmt"
	"path/filepath"

	"github.com/gpumux/gpumux/workers/slot/unpack"
)

// The pattern names the files: a folder would leave out __init__.py.
//
//go:embed gpumux/*.py gpumux/child/*.py
var files embed.FS

// Install writes the runtime below dir, as unpack.Files does, and returns the path of its main.py, to be started as `python main.py` with
// the wire on descriptor 3.
func Install(dir string) (string, error) {
	home, err := unpack.Files(dir, files)
	if err != nil {
		return "", fmt.Errorf("install the Python runtime: %w", err)
	}
	return filepath.Join(home, "gpumux", "main.py"), nil
}
