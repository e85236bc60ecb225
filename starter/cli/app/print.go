package app

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/gpumux/gpumux/internal/text"
)

// PrintJSON writes v for programs.
func PrintJSON(to io.Writer, v any) error {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(v); err != nil {
		return err
	}
	_, err := to.Write(text.Unescaped(b.Bytes()))
	return err
}
