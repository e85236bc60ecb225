// Package embedded gives package internal/local the server of package devserver.
//
// It owns the words in which the two talk and nothing else: it never starts anything by
// itself, and what Start returns stops with its Stop.
package embedded

import (
	"cmp"
	"context"

	"github.com/gpumux/gpumux/devserver"
	"github.com/gpumux/gpumux/internal/local"
)

// Start is local.Options.Server.
func Start(ctx context.Context, o local.ServerOptions) (local.Server, error) {
	server, err := devserver.Start(ctx, devserver.Options{
		Data: o.Data, Port: cmp.Or(o.Port, devserver.AnyPort), UIPort: cmp.Or(o.UIPort, devserver.AnyPort), Headless: o.Headless,
		Token: o.Token, UIHosts: o.UIHosts, Log: o.Log,
	})
	if err != nil {
		return nil, err // and no server in the interface
	}
	return server, nil
}
