package app

import (
	"os"
	"runtime/debug"

	"github.com/gpumux/gpumux/starter/local"
)

// NeedLocal says that this binary has no server.
func (a *App) NeedLocal(what string) error {
	if a.Local == nil {
		return Usage("%s: this gpumux is built without the embedded server; use the all-in-one binary (make build), or connect with --address", what)
	}
	return nil
}

// LocalOptions are the options of what this process runs itself. It also lets the collector run more often.
func (a *App) LocalOptions(calm bool) local.Options {
	if os.Getenv("GOGC") == "" {
		// A server, a worker and a client share this process: a few percent of its time for a third less memory.
		debug.SetGCPercent(50)
	}
	return local.Options{Server: a.Local, ServerOptions: local.ServerOptions{Log: a.Log(calm)}, Keys: a.KeysPath, Version: a.Version,
		Command: append([]string{"gpumux"}, a.Args...), Say: func(text string) { a.Console.Say("%s", text) }}
}

// ConnectionOf is the connection to a server in this process.
func ConnectionOf(s *local.Session) *Connection {
	s.Starter.Arrays = true
	return &Connection{Starter: s.Starter, Address: s.Server.Address(), UI: s.Server.UI(), Key: s.Server.Key()}
}
