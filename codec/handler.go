package codec

import (
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"go.temporal.io/sdk/converter"
)

// maxRequest bounds what a client sends at once. A payload has at most 2 MiB.
const maxRequest = 64 << 20

// HandlerOptions adjust a codec server.
type HandlerOptions struct {
	// Secret is the first element of every path. Default: none, and everybody can decrypt.
	Secret string
	// Origins are web pages that may ask, such as http://127.0.0.1:8233. Default: none.
	Origins []string
}

// Secret is a path element that only holders of the current key know.
func (k *Keys) Secret() (string, error) {
	secret, err := k.Derive(k.current, nil, "gpumux codec server 1")
	return hex.EncodeToString(secret[:min(len(secret), 16)]), err
}

// NewHandler serves a codec to the Web UI and to `temporal --codec-endpoint`. It answers
// no page of another origin, which browsers name with every request that posts.
func NewHandler(c converter.PayloadCodec, o HandlerOptions) http.Handler {
	inner := converter.NewPayloadCodecHTTPHandler(c)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Add("Vary", "Origin")
		if origin := r.Header.Get("Origin"); origin != "" {
			if !slices.Contains(o.Origins, origin) {
				http.Error(w, "pages of "+origin+" may not ask; start the server with that origin", http.StatusForbidden)
				return
			}
			header.Set("Access-Control-Allow-Origin", origin)
			header.Set("Access-Control-Allow-Methods", "POST")
			header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Namespace")
			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		if !o.hasPath(r.URL.Path) {
			http.NotFound(w, r)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		inner.ServeHTTP(w, r)
	})
}

// hasPath reports whether a path is one of the two.
func (o HandlerOptions) hasPath(path string) bool {
	secret, verb := "", strings.TrimPrefix(path, "/")
	if o.Secret != "" {
		secret, verb, _ = strings.Cut(verb, "/")
	}
	return subtle.ConstantTimeCompare([]byte(secret), []byte(o.Secret)) == 1 && (verb == "encode" || verb == "decode")
}
