package codec

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// What `temporal` and services with a remote codec send comes back through the server as
// through the keys.
func TestHandler_IsARemoteCodec(t *testing.T) {
	k := load(t, map[string]string{"a.key": one})
	secret, err := k.Secret()
	require.NoError(t, err)
	require.Len(t, secret, 32)
	server := httptest.NewServer(NewHandler(k, HandlerOptions{Secret: secret}))
	defer server.Close()
	remote := converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{Endpoint: server.URL + "/" + secret})
	sealed := seal(t, k, "text")
	back, err := remote.Decode([]*common.Payload{sealed})
	require.NoError(t, err)
	require.Equal(t, `"text"`, string(back[0].Data))
	again, err := remote.Encode(back)
	require.NoError(t, err)
	back, err = k.Decode(again)
	require.NoError(t, err)
	require.Equal(t, `"text"`, string(back[0].Data))

	for _, path := range []string{"", "/" + strings.Repeat("0", 32), "/" + secret + "0", "//" + secret} {
		stranger := converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{Endpoint: server.URL + path})
		_, err := stranger.Decode([]*common.Payload{sealed})
		require.ErrorContains(t, err, "Not Found", path)
	}
}

func TestHandler_AnswersOnlyThePagesThatItKnows(t *testing.T) {
	k := load(t, map[string]string{"a.key": one})
	const ui = "http://127.0.0.1:8233"
	handler := NewHandler(k, HandlerOptions{Secret: "s", Origins: []string{ui}})
	for name, c := range map[string]struct {
		method, host, origin, kind string
		code                       int
		allowed                    string
	}{
		"temporal":          {"POST", "127.0.0.1:8234", "", "application/json", 200, ""},
		"the UI":            {"POST", "localhost:8234", ui, "application/json; charset=utf-8", 200, ui},
		"the UI asks first": {"OPTIONS", "[::1]:8234", ui, "", 204, ui},
		"another page":      {"POST", "127.0.0.1:8234", "http://evil.example", "application/json", 403, ""},
		"another page asks": {"OPTIONS", "127.0.0.1:8234", "http://evil.example", "", 403, ""},
		"a page of a file":  {"POST", "127.0.0.1:8234", "null", "application/json", 403, ""},
		"a look":            {"GET", "127.0.0.1:8234", "", "application/json", 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, "/s/decode", strings.NewReader(`{"payloads":[]}`))
			r.Host = c.host
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			r.Header.Set("Content-Type", c.kind)
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, r)
			require.Equal(t, c.code, answer.Code, answer.Body)
			require.Equal(t, c.allowed, answer.Header().Get("Access-Control-Allow-Origin"))
			require.Equal(t, "no-store", answer.Header().Get("Cache-Control"))
		})
	}
	large := httptest.NewRequest(http.MethodPost, "/s/decode", strings.NewReader(strings.Repeat(" ", maxRequest+1)))
	large.Host = "127.0.0.1"
	large.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, large)
	require.Equal(t, http.StatusBadRequest, answer.Code)
}
