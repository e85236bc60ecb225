package devserver

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
)

// gate stands before the Web UI. A browser sends requests for any web page that it shows, so a request must be meant for this
// host, by its name, and come from the UI's own pages; with a token it must also come from a browser that was shown the key.
type gate struct {
	behind http.Handler
	hosts  []string
	token  token
}

// ServeHTTP passes a request on, or says why not.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !g.ours(r.Host):
		http.Error(w, fmt.Sprintf("%q is no name of this Web UI; open it at localhost, or give the name with --ui-host", r.Host), http.StatusForbidden)
	case !fromItself(r):
		http.Error(w, "the Web UI takes no requests from pages of other sites", http.StatusForbidden)
	case g.token == "":
		g.behind.ServeHTTP(w, r)
	default:
		g.admit(w, r)
	}
}

// ours reports whether a Host header names this host. Another name that leads here is that of somebody's page.
func (g *gate) ours(host string) bool {
	name := host
	if split, _, err := net.SplitHostPort(host); err == nil {
		name = split
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback() ||
		slices.ContainsFunc(g.hosts, func(h string) bool { return strings.EqualFold(h, name) })
}

// fromItself reports whether a request that says where it comes from comes from the page's own origin. A proxy in front may have
// another scheme.
func fromItself(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		site := r.Header.Get("Sec-Fetch-Site")
		return site != "cross-site" || r.Method == http.MethodGet || r.Method == http.MethodHead
	}
	from, err := url.Parse(origin)
	return err == nil && from.Host != "" && strings.EqualFold(from.Host, r.Host)
}

// admit lets in who has the key in a cookie, and gives it to who has it in the address.
func (g *gate) admit(w http.ResponseWriter, r *http.Request) {
	const name = "gpumux_key"
	w.Header().Set("Referrer-Policy", "same-origin")
	query := r.URL.Query()
	if same(query.Get("key"), g.token.key()) {
		http.SetCookie(w, &http.Cookie{Name: name, Value: g.token.key(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		query.Del("key")
		http.Redirect(w, r, (&url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: query.Encode()}).String(), http.StatusSeeOther)
		return
	}
	// A browser may hold one of an earlier server too.
	if !slices.ContainsFunc(r.CookiesNamed(name), func(c *http.Cookie) bool { return same(c.Value, g.token.key()) }) {
		http.Error(w, "this Web UI is private; open the address with ?key= that gpumux printed", http.StatusForbidden)
		return
	}
	// The UI asks the server with this header of the browser's, or with the request's context.
	r = r.WithContext(metadata.AppendToOutgoingContext(r.Context(), "authorization", g.token.header()))
	r.Header.Set("Authorization", g.token.header())
	g.behind.ServeHTTP(w, r)
}
