package cli

import (
	"os"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/store"
)

// keysFlag is of every command that reads or writes what maps keep.
func (a *app) keysFlag(c *cobra.Command) {
	c.Flags().StringVar(&a.keysPath, "keys", os.Getenv("GPUMUX_KEYS"),
		"key file, or folder of them, that payloads and the store are encrypted with (default GPUMUX_KEYS, else none)")
	c.Flags().Lookup("keys").DefValue = ""
}

// sealing is what the keys are used for; both are nil without keys.
type sealing struct {
	payloads converter.PayloadCodec
	objects  store.Keys
}

// sealing reads the keys.
func (a *app) sealing() (sealing, error) {
	if a.keysPath == "" {
		return sealing{}, nil
	}
	keys, err := codec.Load(a.keysPath)
	if err != nil {
		return sealing{}, usage("--keys: %v", err)
	}
	return sealing{keys, keys}, nil
}
