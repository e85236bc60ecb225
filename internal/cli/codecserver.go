package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/report"
)

type codecServerFlags struct {
	listen  string
	origins []string
}

func codecServerCommand(a *app) *cobra.Command {
	f := &codecServerFlags{}
	c := &cobra.Command{
		Use:   "codec-server --keys PATH",
		Short: "Decrypt payloads for the Web UI and for temporal",
		Long: `Decrypt payloads for the Web UI and for temporal, until Ctrl-C. The address that it prints ends in a
secret made of the current key; who has it can decrypt every payload that they can get. Enter it in the Web
UI as the codec server's endpoint, or put it into TEMPORAL_CODEC_ENDPOINT for temporal.

It listens on loopback unless told otherwise, and answers web pages of the given origins only.`,
		Example: `  gpumux codec-server --keys /etc/gpumux/keys --origin http://127.0.0.1:8233`,
		Args:    cobra.NoArgs,
	}
	flags := c.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8234", "host:port to listen on; beyond loopback put a proxy with TLS before it")
	flags.StringSliceVar(&f.origins, "origin", []string{"http://127.0.0.1:8233", "http://localhost:8233"}, "addresses of the Web UI whose pages may ask")
	a.keysFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error { return runCodecServer(c.Context(), a, f) }
	return c
}

func runCodecServer(ctx context.Context, a *app, f *codecServerFlags) error {
	var m mistakes
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		m.add("--listen %s: %v; write host:port, such as 127.0.0.1:8234", f.listen, err)
	}
	for _, origin := range f.origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path+u.RawQuery != "" {
			m.add("--origin %s: write scheme, host and port alone, such as http://127.0.0.1:8233", origin)
		}
	}
	m.when(a.keysPath == "", "--keys is missing; name a key file or a folder of them, see docs/encryption.md")
	if err := m.err(); err != nil {
		return err
	}
	keys, err := codec.Load(a.keysPath)
	if err != nil {
		return usage("--keys: %v", err)
	}
	secret, err := keys.Secret()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return unavailable(fmt.Errorf("%w; give another --listen", err))
	}
	server := &http.Server{
		Handler:           codec.NewHandler(keys, codec.HandlerOptions{Secret: secret, Origins: f.origins}),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}
	endpoint := fmt.Sprintf("http://%s/%s", listener.Addr(), secret)
	report.Fields(a.console, "endpoint", endpoint, "keys", strings.Join(keys.IDs(), ", ")+" decrypt")
	a.console.Say("\nread a map:   temporal workflow show -w MAP --codec-endpoint %s\nCtrl-C stops", endpoint)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
	case <-ctx.Done():
		ending, cancel := context.WithTimeout(a.hard, 5*time.Second)
		defer cancel()
		err = server.Shutdown(ending)
		<-served
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
		return unavailable(err)
	}
	return nil
}
