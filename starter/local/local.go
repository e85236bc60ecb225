package local

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/config"
)

// Options say what runs on this machine.
type Options struct {
	// Server starts the embedded Temporal, such as embedded.Start of the module deploy/devserver.
	Server func(ctx context.Context, o ServerOptions) (Server, error)
	// ServerOptions are passed on to Server. Data is the folder of the whole state; default: for a map one of its own that Folder
	// knows, else a temporary one, which goes with the session. Log is the worker's, too. Token is not for the caller to choose.
	ServerOptions
	// Public lets everybody on this machine use the server. Default: it asks for Session.Token.
	Public bool
	// Task is what the worker runs; Modules are, instead, all functions of a folder. Default: there is no worker.
	Task    *Task
	Modules *config.Task
	// Pools are the worker's. Default: Pools without names.
	Pools []config.Pool
	// Keys is the key file, or folder of them, that payloads and the store are encrypted with. Default: none.
	Keys string
	// StopTimeout is how long running chunks may go on at the end. Default 1 s.
	StopTimeout time.Duration
	// Last says that this process ends after Close. The server ends with it then, a second earlier than it could be stopped; nothing that
	// is stored is lost.
	Last bool
	// Version is what the worker says of itself. Default "dev".
	Version string
	// Command is how the map is started again, for those who list what was interrupted.
	Command []string
	// Start starts the map. Default: starter.Starter.Start.
	Start func(ctx context.Context, s *starter.Starter, m starter.Map) (*starter.Handle, error)
	// Say is told what went wrong or has changed and stops nothing, in whole sentences. Default: nobody.
	Say func(text string)
}

// ServerOptions say what server to start.
type ServerOptions struct {
	// Data is the folder of the database.
	Data string
	// Port and UIPort are numbers, or 0 for a free one.
	Port, UIPort int
	// Headless goes without the Web UI.
	Headless bool
	// Token is what callers must show; empty lets everybody on this machine in.
	Token string
	// UIHosts are names beside localhost under which browsers may ask for the Web UI.
	UIHosts []string
	// Log may be nil.
	Log *zap.Logger
}

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
