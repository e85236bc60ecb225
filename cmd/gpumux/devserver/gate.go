package devserver

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/gpumux/gpumux/internal/names"
)

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
