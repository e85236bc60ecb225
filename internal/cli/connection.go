package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/starter"
)

func (a *app) connectionFlags(c *cobra.Command) {
	c.Flags().StringVar(&a.address, "address", "", "host:port of Temporal (default TEMPORAL_ADDRESS, else 127.0.0.1:7233)")
	c.Flags().StringVar(&a.connectionFile, "connect", "", connectUsage)
	c.Flags().StringVar(&a.namespace, "namespace", "", "Temporal namespace (default TEMPORAL_NAMESPACE, else default)")
}

const connectUsage = "connection `file` of a server of gpumux dev --listen (default TEMPORAL_CONFIG_FILE)"

// storeFlags are those of a connection, and the store's.
func (a *app) storeFlags(c *cobra.Command) {
	a.connectionFlags(c)
	c.Flags().StringVar(&a.storeURL, "store", os.Getenv("GPUMUX_STORE"),
		"blob URL of the workers' store (default GPUMUX_STORE, else asked from the workers)")
	c.Flags().Lookup("store").DefValue = ""
}

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

func (a *app) onMap(c *cobra.Command, use func(ctx context.Context, conn *connection, h *starter.Handle) error) *cobra.Command {
	c.Args = a.idOnServer
	return a.onServer(c, func(ctx context.Context, conn *connection, args []string) error {
		h, err := conn.Open(ctx, args[0])
		if err != nil {
			return err
		}
		return use(ctx, conn, h)
	})
}

// idOnServer refuses the ID of a map of this machine, unless a flag names a server.
func (a *app) idOnServer(c *cobra.Command, args []string) error {
	if err := oneID(c, args); err != nil {
		return err
	}
	if _, here := stateHere(a, args[0]); here {
		return fmt.Errorf("%s is a map of this machine: its own command goes on with it and, with --retry, runs its failed items again; "+
			"`gpumux show` and `gpumux results` take its ID, and `gpumux local` lists such maps", args[0])
	}
	return nil
}

func oneID(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give the ID of one map, as `gpumux ls` shows it: %s", strings.TrimSpace(c.Example))
	}
	if strings.TrimSpace(args[0]) == "" {
		return errors.New("the ID is empty, perhaps from a variable that is not set; `gpumux ls` lists the maps")
	}
	return nil
}

type connection struct {
	*starter.Starter
	// address is host:port of the server.
	address string
	// ui is the address of the Web UI, with ?key= where it asks for one, or empty when it is
	// not known.
	ui string
}

// connectWithStore opens Temporal and, when one is named, the store.
func (a *app) connectWithStore(ctx context.Context) (*connection, error) {
	conn, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.openStore(ctx, conn); err != nil {
		conn.close()
		return nil, err
	}
	return conn, nil
}

// openStore opens the store that the user or the connection file named. Without one the
// workers' own is opened when it is needed.
func (a *app) openStore(ctx context.Context, conn *connection) error {
	if conn.Store, conn.StoreID = conn.storeOr(a.storeURL); conn.Store == "" {
		return nil
	}
	if err := conn.OpenStore(ctx); err != nil {
		return unavailable(err)
	}
	return nil
}

// storeOr is the store that the user named, else that of the connection file, with its
// identity; there may be no connection.
func (c *connection) storeOr(named string) (url, id string) {
	if named != "" || c == nil {
		return named, ""
	}
	return c.Store, c.StoreID
}

// connect opens Temporal alone. The store may be away.
func (a *app) connect(ctx context.Context) (*connection, error) {
	if a.connectionFile != "" && a.address != "" {
		return nil, usage("give either --connect or --address")
	}
	o := fleet.Options{File: a.connectionFile, Address: a.address, Namespace: a.namespace}
	options, file, err := fleet.ClientOptions(o)
	if err != nil {
		return nil, err
	}
	c, err := fleet.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	conn := &connection{Starter: &starter.Starter{Client: c, Namespace: options.Namespace, Store: file.Store, StoreID: file.StoreID}, address: options.HostPort}
	conn.ui = cmp.Or(os.Getenv("GPUMUX_UI"), findUI(options))
	return conn, nil
}

func (c *connection) Fleet() *fleet.Fleet {
	return &fleet.Fleet{Client: c.Client, Namespace: c.Namespace}
}

func (c *connection) close() {
	c.Starter.Close()
	c.Client.Close()
}

// link is the page of a map in the Web UI, or empty.
func (c *connection) link(id string) string {
	if c.ui == "" {
		return ""
	}
	return c.page("/namespaces/" + url.PathEscape(c.Namespace) + "/workflows/" + url.PathEscape(id))
}

func (c *connection) page(path string) string {
	address, key, _ := strings.Cut(c.ui, "?")
	return strings.TrimSuffix(address+path+"?"+key, "?")
}

// findUI returns the Web UI of `gpumux dev` if it answers here.
func findUI(o client.Options) string {
	if _, port, _ := net.SplitHostPort(o.HostPort); port != "7233" || !names.Loopback(o.HostPort) {
		return ""
	}
	conn, err := net.DialTimeout("tcp", "127.0.0.1:8233", 200*time.Millisecond)
	if err != nil {
		return ""
	}
	_ = conn.Close()
	return "http://127.0.0.1:8233"
}
