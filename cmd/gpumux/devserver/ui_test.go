package devserver

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUI_ServesPagesAndAPI(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	for _, path := range []string{"/", "/namespaces/default/workflows"} {
		require.Contains(t, string(get(t, s.UI()+path)), "<html")
	}
	var answer struct {
		Namespaces []struct {
			NamespaceInfo struct{ Name string }
		}
	}
	require.NoError(t, json.Unmarshal(get(t, s.UI()+"/api/v1/namespaces"), &answer))
	var names []string
	for _, namespace := range answer.Namespaces {
		names = append(names, namespace.NamespaceInfo.Name)
	}
	require.Contains(t, names, "default")

	// It opens the namespace, and asks nobody else for news.
	var settings struct {
		DefaultNamespace   string
		DisableNewsFetch   bool
		NotifyOnNewVersion bool
	}
	require.NoError(t, json.Unmarshal(get(t, s.UI()+"/api/v1/settings"), &settings))
	require.Equal(t, "default", settings.DefaultNamespace)
	require.True(t, settings.DisableNewsFetch)
	require.False(t, settings.NotifyOnNewVersion)
	require.JSONEq(t, `{"Releases":{}}`, string(get(t, s.UI()+"/api/v1/releases")))
}

// ask sends a request to the Web UI as a browser does.
func ask(t *testing.T, method, url string, change func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	change(r)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

// A page whose name somebody lets point to this machine gets nothing of the UI; one of
// another origin cannot change anything.
func TestUI_ChecksHostAndOrigin(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	_, port, _ := strings.Cut(strings.TrimPrefix(s.UI(), "http://"), ":")
	for _, test := range []struct {
		host, origin, site, method string
		want                       int
	}{
		{host: "localhost:" + port, want: 200},
		{host: "localhost:9000", want: 200}, // a forwarded port
		{host: "[::1]:" + port, want: 200},
		{host: "evil.example", want: 403},
		{host: "evil.example:" + port, want: 403},
		{host: "localhost.evil.example", want: 403},
		{host: "127.0.0.1.evil.example", want: 403},
		{host: "localhost:" + port, origin: "http://localhost:" + port, want: 200},
		{host: "localhost:" + port, origin: "http://localhost:1", method: http.MethodPost, want: 403},
		{host: "localhost:" + port, origin: "http://evil.example", method: http.MethodPost, want: 403},
		{host: "localhost:" + port, origin: "null", method: http.MethodPost, want: 403},
		{host: "localhost:" + port, site: "cross-site", want: 200}, // a link that leads here
		{host: "localhost:" + port, site: "cross-site", method: http.MethodPost, want: 403},
	} {
		got, body := ask(t, cmp.Or(test.method, http.MethodGet), s.UI()+"/api/v1/namespaces", func(r *http.Request) {
			r.Host = test.host
			if test.origin != "" {
				r.Header.Set("Origin", test.origin)
			}
			if test.site != "" {
				r.Header.Set("Sec-Fetch-Site", test.site)
			}
		})
		require.Equal(t, test.want, got, "%+v: %s", test, body)
		if test.want == 403 {
			require.NotContains(t, body, "namespaceInfo")
		}
	}
}

func TestUI_WithATokenAsksForItsKey(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Token: secret})
	page, key, keyed := strings.Cut(s.UI(), "?key=")
	require.True(t, keyed)
	require.NotContains(t, key, secret)
	for _, path := range []string{"/", "/api/v1/namespaces", "/api/v1/namespaces?key=" + secret, "/?key="} {
		got, body := ask(t, http.MethodGet, page+path, func(*http.Request) {})
		require.Equal(t, 403, got, path)
		require.Contains(t, body, "?key=")
	}
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	answer, err := client.Get(page + "/namespaces/default/workflows?key=" + key)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, 200, answer.StatusCode)
	require.NotContains(t, answer.Request.URL.String(), "key", "it does not stay in the address")
	for _, path := range []string{"/api/v1/namespaces", "/api/v1/namespaces/default/workflows"} {
		answer, err := client.Get(page + path)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, 200, answer.StatusCode, "%s", body)
	}
	raw, err := client.Get(page + "/api/v1/namespaces/default/workflows/none/run/none/history.json")
	require.NoError(t, err)
	defer raw.Body.Close()
	body, err := io.ReadAll(raw.Body)
	require.NoError(t, err)
	require.NotContains(t, string(body), "unauthorized")
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s", body)
	return body
}
