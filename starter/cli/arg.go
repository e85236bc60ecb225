package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gpumux/gpumux"
)

// parseArg reads --arg: a file of JSON, or else JSON itself.
func (f *taskFlags) parseArg(text string) error {
	read, err := os.ReadFile(text)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist) || json.Valid([]byte(text)):
		if read = []byte(text); !json.Valid(read) {
			return fmt.Errorf("%.80q is neither a file nor JSON", text)
		}
	default:
		return err
	}
	var plain bytes.Buffer
	if err := json.Compact(&plain, read); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if n := plain.Len(); n > gpumux.MaxArg {
		return fmt.Errorf("%s of JSON are more than %s; put them in a file that the task reads, and give its path", gpumux.Size(n), gpumux.Size(gpumux.MaxArg))
	}
	f.input.Arg = plain.Bytes()
	return nil
}
