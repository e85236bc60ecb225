package app

import (
	"encoding/json"
	"io"
)

// PrintJSON writes v for programs.
func PrintJSON(to io.Writer, v any) error {
	out := json.NewEncoder(to)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}
