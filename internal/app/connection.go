package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/store"
)

// ConnectionFlags adds the flags of a command that talks to Temporal.
func (a *App) ConnectionFlags(c *cobra.Command) {
	c.Flags().StringVar(&a.Address, "address", "", "host:port of Temporal (default TEMPORAL_ADDRESS, else 127.0.0.1:7233)")
	c.Flags().StringVar(&a.Namespace, "namespace", "", "Temporal namespace (default TEMPORAL_NAMESPACE, else default)")
	a.KeysFlag(c)
}

// StoreFlag adds the flag of a command that reads or writes large inputs and results.
func (a *App) StoreFlag(c *cobra.Command) {
	c.Flags().StringVar(&a.StoreURL, "store", os.Getenv("GPUMUX_STORE"),
		"blob URL of the workers' store (default GPUMUX_STORE, else asked from the workers)")
	c.Flags().Lookup("store").DefValue = ""
}

// KeysFlag adds the flag of a command that reads or writes payloads or the store.
func (a *App) KeysFlag(c *cobra.Command) {
	c.Flags().StringVar(&a.KeysPath, "keys", os.Getenv("GPUMUX_KEYS"),
		"key file, or folder of them, that payloads and the store are encrypted with (default GPUMUX_KEYS, else none)")
	c.Flags().Lookup("keys").DefValue = ""
}

// ReadKeys reads the keys for payloads and for the store; nil without --keys.
func (a *App) ReadKeys() (converter.PayloadCodec, store.Keys, error) {
	if a.KeysPath == "" {
		return nil, nil, nil
	}
	keys, err := codec.Load(a.KeysPath)
	if err != nil {
		return nil, nil, Usage("--keys: %v", err)
	}
	return keys, keys, nil
}

// OnServer makes c a command that uses a server.
func (a *App) OnServer(c *cobra.Command, use func(ctx context.Context, conn *Connection, args []string) error) *cobra.Command {
	a.ConnectionFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		conn, err := a.Connect(c.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		return use(c.Context(), conn, args)
	}
	return c
}

// OnMap makes c a command about one map.
func (a *App) OnMap(c *cobra.Command, use func(ctx context.Context, conn *Connection, h *starter.Handle) error) *cobra.Command {
	c.Args = OneID
	return a.OnServer(c, func(ctx context.Context, conn *Connection, args []string) error {
		h, err := conn.Open(ctx, args[0])
		if err != nil {
			return err
		}
		return use(ctx, conn, h)
	})
}

// OneID checks the arguments of a command about one map.
func OneID(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give the ID of one map, as `gpumux ls` shows it: %s", strings.TrimSpace(c.Example))
	}
	if strings.TrimSpace(args[0]) == "" {
		return errors.New("the ID is empty, perhaps from a variable that is not set; `gpumux ls` lists the maps")
	}
	return nil
}

// Connection is a client with the starter over it.
type Connection struct {
	*starter.Starter
	// Address is host:port of the server.
	Address string
	// UI is the address of the Web UI, or empty when it is not known.
	UI string
	// Key opens the pages of a private server; empty where none is needed.
	Key string
}

// ConnectWithStore opens Temporal and, when one is named, the store.
func (a *App) ConnectWithStore(ctx context.Context) (*Connection, error) {
	conn, err := a.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.OpenStore(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// OpenStore opens the store that the user named. Without one the workers' own is opened
// when it is needed.
func (a *App) OpenStore(ctx context.Context, conn *Connection) (err error) {
	if a.StoreURL == "" || conn.Store != nil {
		return nil
	}
	if conn.Store, err = store.Open(ctx, a.StoreURL, conn.Starter.Keys); err != nil {
		return Unavailable(err)
	}
	return nil
}

// Connect opens Temporal alone. The store may be away.
func (a *App) Connect(ctx context.Context) (*Connection, error) {
	payloads, objects, err := a.ReadKeys()
	if err != nil {
		return nil, err
	}
	o := fleet.Options{Address: a.Address, Namespace: a.Namespace, Codec: payloads}
	options, err := fleet.ClientOptions(o)
	if err != nil {
		return nil, err
	}
	c, err := fleet.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Connection{Starter: &starter.Starter{Client: c, Namespace: options.Namespace, Sealed: options.FailureConverter != nil, Keys: objects},
		Address: options.HostPort, UI: findUI(options)}, nil
}

// Close ends the connection.
func (c *Connection) Close() {
	c.Starter.Close()
	if c.Store != nil {
		_ = c.Store.Close()
	}
	c.Client.Close()
}

// Link is the page of a map in the Web UI, or empty.
func (c *Connection) Link(id string) string {
	if c.UI == "" {
		return ""
	}
	return c.Page("/namespaces/" + url.PathEscape(c.Namespace) + "/workflows/" + url.PathEscape(id))
}

// Page is the address of a path of the Web UI.
func (c *Connection) Page(path string) string {
	if c.Key == "" {
		return c.UI + path
	}
	return c.UI + path + "?key=" + c.Key
}

// findUI returns GPUMUX_UI, or the Web UI of `gpumux dev` if it answers here.
func findUI(o client.Options) string {
	if ui := os.Getenv("GPUMUX_UI"); ui != "" {
		return ui
	}
	host, port, err := net.SplitHostPort(o.HostPort)
	if ip := net.ParseIP(host); err != nil || port != "7233" || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return ""
	}
	conn, err := net.DialTimeout("tcp", "127.0.0.1:8233", 200*time.Millisecond)
	if err != nil {
		return ""
	}
	_ = conn.Close()
	return "http://127.0.0.1:8233"
}

const completing = 2 * time.Second

// Completion completes words that a server knows, if one answers.
func (a *App) Completion(words func(ctx context.Context, conn *Connection) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completing)
		defer cancel()
		conn, err := a.Connect(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		defer conn.Close()
		found, err := words(ctx, conn)
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		slices.Sort(found)
		return slices.Compact(found), cobra.ShellCompDirectiveDefault
	}
}
