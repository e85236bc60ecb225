package devserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/temporalio/ui-server/v2/server/api"
	"github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/csrf"
	"github.com/temporalio/ui-server/v2/server/headers"
	"github.com/temporalio/ui-server/v2/server/route"
	"github.com/temporalio/ui-server/v2/ui"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zapio"
	"google.golang.org/grpc/metadata"

	"github.com/gpumux/gpumux/internal/names"
)

const uiDrain = 200 * time.Millisecond

// webUI serves the Web UI. It holds its port from the beginning.
type webUI struct {
	listener net.Listener
	token    token
	server   *http.Server  // nil before serve
	done     chan struct{} // closed when serving has ended
}

func (w *webUI) url() string { return "http://" + w.listener.Addr().String() }

// serve serves in the background until close. The routes are the ui-server's own; its
// Start would end the process when its port is in use.
func (w *webUI) serve(frontend string, authority []byte, log *zap.Logger) error {
	c := &config.Config{
		TemporalGRPCAddress: frontend,
		EnableUI:            true,
		DefaultNamespace:    namespace,
		DisableNewsFetch:    true,
		CORS:                config.CORS{CookieInsecure: true}, // the page itself is plain HTTP
		HideLogs:            true,
	}
	if authority != nil {
		c.TLS = config.TLS{CaData: base64.StdEncoding.EncodeToString(authority), ServerName: names.Server, EnableHostVerification: true}
	}
	defer zap.RedirectStdLog(zap.NewNop())() // it says what it has read
	handler, err := uiHandler(c, log)
	if err != nil {
		return fmt.Errorf("prepare the Web UI: %w", err)
	}
	errorLog, err := zap.NewStdLogAt(log, zapcore.WarnLevel)
	if err != nil {
		return fmt.Errorf("prepare the Web UI: %w", err)
	}
	w.server = &http.Server{Handler: &gate{handler, w.token}, ReadHeaderTimeout: time.Minute, ErrorLog: errorLog}
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		if err := w.server.Serve(w.listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("Web UI ended", zap.Error(err))
		}
	}()
	return nil
}

func uiHandler(c *config.Config, log *zap.Logger) (http.Handler, error) {
	provider, err := config.NewConfigProviderWithRefresh(c)
	if err != nil {
		return nil, err
	}
	assets, err := ui.Assets()
	if err != nil {
		return nil, err
	}
	if assets, err = fs.Sub(assets, "local"); err != nil {
		return nil, err
	}
	e := echo.New()
	e.Logger.SetOutput(&zapio.Writer{Log: log, Level: zapcore.ErrorLevel})
	secure := !c.CORS.CookieInsecure
	e.Use(middleware.Recover(), middleware.Gzip(), middleware.Secure())
	e.Use(csrf.EnsureTokenCookie(secure), middleware.CSRFWithConfig(csrf.MiddlewareConfig(provider, secure)))
	route.SetHealthRoute(e)
	forward := []api.Middleware{headers.WithForwardHeaders([]string{"Caller-Type"})}
	if err := route.SetAPIRoutes(e, provider, forward); err != nil {
		return nil, err
	}
	if err := route.SetUIRoutes(e, c.PublicPath, assets, provider); err != nil {
		return nil, err
	}
	route.SetRenderRoute(e, "/")
	return e, nil
}

func (w *webUI) close() error {
	if w.server == nil {
		return w.listener.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), uiDrain)
	defer cancel()
	err := w.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = w.server.Close()
	}
	<-w.done
	if err != nil {
		return fmt.Errorf("close the Web UI: %w", err)
	}
	return nil
}

// gate protects the Web UI. A browser sends requests for any page that it shows, so one
// must name this host and come from the UI's pages; with a token it needs the key too.
type gate struct {
	ui    http.Handler
	token token
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !names.Loopback(r.Host):
		http.Error(w, fmt.Sprintf("%q is no name of this Web UI; open it at localhost", r.Host), http.StatusForbidden)
	case http.NewCrossOriginProtection().Check(r) != nil:
		http.Error(w, "the Web UI takes no requests from pages of other sites", http.StatusForbidden)
	case g.token == "":
		g.ui.ServeHTTP(w, r)
	default:
		g.authenticate(w, r)
	}
}

// authenticate wants the key in a cookie, or in the address, and then sets the cookie.
func (g *gate) authenticate(w http.ResponseWriter, r *http.Request) {
	const name = "gpumux_key"
	w.Header().Set("Referrer-Policy", "same-origin")
	query := r.URL.Query()
	if same(query.Get("key"), g.token.key()) {
		http.SetCookie(w, &http.Cookie{Name: name, Value: g.token.key(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		query.Del("key")
		http.Redirect(w, r, (&url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: query.Encode()}).String(), http.StatusSeeOther)
		return
	}
	// A browser may also have the cookie of an earlier server.
	if !slices.ContainsFunc(r.CookiesNamed(name), func(c *http.Cookie) bool { return same(c.Value, g.token.key()) }) {
		http.Error(w, "this Web UI is private; open the address with ?key= that gpumux printed", http.StatusForbidden)
		return
	}
	// The UI calls the server with this header, or with the request's context.
	r = r.WithContext(metadata.AppendToOutgoingContext(r.Context(), "authorization", g.token.header()))
	r.Header.Set("Authorization", g.token.header())
	g.ui.ServeHTTP(w, r)
}
