package cli

import (
	"context"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/connect"
	"github.com/gpumux/gpumux/store"
)

// connectionFlags are of every command that talks to Temporal.
func (a *app) connectionFlags(c *cobra.Command) {
	c.Flags().StringVar(&a.address, "address", "", "host:port of Temporal (default TEMPORAL_ADDRESS, else 127.0.0.1:7233)")
	c.Flags().StringVar(&a.namespace, "namespace", "", "Temporal namespace (default TEMPORAL_NAMESPACE, else default)")
	a.keysFlag(c)
}

// storeFlag is of commands that read or write large inputs and results.
func (a *app) storeFlag(c *cobra.Command) {
	c.Flags().StringVar(&a.storeURL, "store", os.Getenv("GPUMUX_STORE"),
		"blob URL of the workers' store (default GPUMUX_STORE, else asked from the workers)")
	c.Flags().Lookup("store").DefValue = ""
}

// keysFlag is of every command that reads or writes what maps keep.
func (a *app) keysFlag(c *cobra.Command) {
	c.Flags().StringVar(&a.keysPath, "keys", os.Getenv("GPUMUX_KEYS"),
		"key file, or folder of them, that payloads and the store are encrypted with (default GPUMUX_KEYS, else none)")
	c.Flags().Lookup("keys").DefValue = ""
}

// keys reads the keys for payloads and those for the store; both are nil without --keys.
func (a *app) keys() (converter.PayloadCodec, store.Keys, error) {
	if a.keysPath == "" {
		return nil, nil, nil
	}
	keys, err := codec.Load(a.keysPath)
	if err != nil {
		return nil, nil, usage("--keys: %v", err)
	}
	return keys, keys, nil
}

// onServer makes c a command that uses a server.
func (a *app) onServer(c *cobra.Command, use func(ctx context.Context, conn *connection, args []string) error) *cobra.Command {
	a.connectionFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		conn, err := a.connect(c.Context())
		if err != nil {
			return err
		}
		defer conn.close()
		return use(c.Context(), conn, args)
	}
	return c
}

// onMap makes c a command about one map.
func (a *app) onMap(c *cobra.Command, use func(ctx context.Context, conn *connection, h *starter.Handle) error) *cobra.Command {
	c.Args = oneID
	return a.onServer(c, func(ctx context.Context, conn *connection, args []string) error {
		h, err := conn.Open(ctx, args[0])
		if err != nil {
			return err
		}
		return use(ctx, conn, h)
	})
}

// connection is a client with the starter over it.
type connection struct {
	*starter.Starter
	address, namespace string
	// ui is the address of the Web UI, or empty when it is not known.
	ui string
	// key is what a page of it is opened with; empty where it asks for none.
	key string
	// again says how to come back to results that could not be written, when not with `gpumux results`.
	again string
}

// connectWithStore opens Temporal and, when one is named, the store.
func (a *app) connectWithStore(ctx context.Context) (*connection, error) {
	conn, err := a.connect(ctx)
	if err != nil || a.storeURL == "" {
		return conn, err
	}
	if conn.Store, err = store.Open(ctx, a.storeURL, conn.Keys); err != nil {
		conn.close()
		return nil, unavailable(err)
	}
	return conn, nil
}

// connect opens Temporal alone: a map can be looked at and steered while its store is away.
func (a *app) connect(ctx context.Context) (*connection, error) {
	payloads, objects, err := a.keys()
	if err != nil {
		return nil, err
	}
	o := connect.Options{Address: a.address, Namespace: a.namespace, Codec: payloads}
	options, err := connect.ClientOptions(o)
	if err != nil {
		return nil, err
	}
	c, err := connect.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	return &connection{Starter: &starter.Starter{Client: c, Namespace: options.Namespace, Converter: options.DataConverter, Keys: objects,
		Arrays: true}, address: options.HostPort, namespace: options.Namespace, ui: findUI(options)}, nil
}

func (c *connection) close() {
	c.Starter.Close()
	if c.Store != nil {
		_ = c.Store.Close()
	}
	c.Client.Close()
}

// link is the page of a map in the Web UI, or empty.
func (c *connection) link(id string) string {
	if c.ui == "" {
		return ""
	}
	return c.page("/namespaces/" + url.PathEscape(c.namespace) + "/workflows/" + url.PathEscape(id))
}

// page is the address of a path of the Web UI.
func (c *connection) page(path string) string {
	if c.key == "" {
		return c.ui + path
	}
	return c.ui + path + "?key=" + c.key
}

// findUI is GPUMUX_UI, or the Web UI that `gpumux dev` serves beside a server on this machine.
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
