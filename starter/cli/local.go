package cli

import (
	"context"

	"go.uber.org/zap"
)

// Local starts the embedded Temporal. The module deploy/devserver has it; the lean binary goes without.
type Local interface {
	// Start returns when the server answers. Its errors say which port or folder is at fault.
	Start(ctx context.Context, o LocalOptions) (Server, error)
}

// LocalOptions say what server to start.
type LocalOptions struct {
	// Data is the folder of the database; empty means memory.
	Data string
	// Port and UIPort are numbers, or AnyPort.
	Port, UIPort int
	// Headless goes without the Web UI.
	Headless bool
	// Token is what callers must show; empty lets everybody on this machine in.
	Token string
	// UIHosts are names beside localhost under which browsers may ask for the Web UI.
	UIHosts []string
	Log     *zap.Logger
}

// AnyPort asks for a free port.
const AnyPort = -1

// Server is a running Temporal on loopback.
type Server interface {
	// Address is host:port of the frontend.
	Address() string
	// UI is the URL of the Web UI, or empty.
	UI() string
	// Key is what a page of the Web UI must be opened with, once, as ?key=; empty where it asks for none.
	Key() string
	// Stop closes everything; it may be called again.
	Stop() error
}

// needLocal says that this binary has no server.
func (a *app) needLocal(what string) error {
	if a.Local == nil {
		return usage("%s: this gpumux is built without the embedded server; use the all-in-one binary (make build), or connect with --address", what)
	}
	return nil
}
