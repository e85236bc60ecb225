package devserver

import (
	"encoding/json"
	"io"
	"net/http"
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
}

func TestUI_OpensOurNamespaceAndAsksNobodyElse(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Namespace: "lab"})
	var settings struct {
		DefaultNamespace   string
		DisableNewsFetch   bool
		NotifyOnNewVersion bool
	}
	require.NoError(t, json.Unmarshal(get(t, s.UI()+"/api/v1/settings"), &settings))
	require.Equal(t, "lab", settings.DefaultNamespace)
	require.True(t, settings.DisableNewsFetch)
	require.False(t, settings.NotifyOnNewVersion)
	require.JSONEq(t, `{"Releases":{}}`, string(get(t, s.UI()+"/api/v1/releases")))
}

// A page of another site must not steer workflows through a person's browser.
func TestUI_RefusesForeignPosts(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	answer, err := http.Post(s.UI()+"/api/v1/namespaces/default/workflows/w/terminate", "text/plain", nil)
	require.NoError(t, err)
	answer.Body.Close()
	require.Contains(t, []int{http.StatusBadRequest, http.StatusForbidden}, answer.StatusCode)
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
