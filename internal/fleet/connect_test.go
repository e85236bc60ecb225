package fleet

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// conventions clears what the environment of the test says about Temporal.
func conventions(t *testing.T) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "TEMPORAL_") {
			t.Setenv(name, "")
			require.NoError(t, os.Unsetenv(name))
		}
	}
	t.Setenv("TEMPORAL_CONFIG_FILE", os.DevNull)
}

func TestConnect_NobodyListens(t *testing.T) {
	conventions(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = Dial(ctx, Options{Address: address})
	require.NoError(t, ctx.Err(), "it gives up by itself")
	var failed *ConnectError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, address, failed.Address)
	for _, text := range []string{address, "connection refused", "gpumux dev", "TEMPORAL_ADDRESS"} {
		require.ErrorContains(t, err, text)
	}
}

func TestConnect_SomethingElseListens(t *testing.T) {
	conventions(t)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	address := strings.TrimPrefix(other.URL, "http://")
	_, err := Dial(t.Context(), Options{Address: address, Timeout: time.Second})
	var failed *ConnectError
	require.ErrorAs(t, err, &failed)
	require.ErrorContains(t, err, "not Temporal as configured")
}

func TestClientOptions_FlagsWinOverConventions(t *testing.T) {
	conventions(t)
	o, _, err := ClientOptions(Options{})
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:7233", o.HostPort)
	require.Equal(t, "default", o.Namespace)

	file := filepath.Join(t.TempDir(), "temporal.toml")
	require.NoError(t, os.WriteFile(file, []byte("[profile.default]\naddress = \"file:1\"\nnamespace = \"filed\"\n"), 0o600))
	t.Setenv("TEMPORAL_CONFIG_FILE", file)
	t.Setenv("TEMPORAL_NAMESPACE", "env")
	o, _, err = ClientOptions(Options{})
	require.NoError(t, err)
	require.Equal(t, "file:1", o.HostPort)
	require.Equal(t, "env", o.Namespace)

	t.Setenv("TEMPORAL_API_KEY", "secret")
	o, _, err = ClientOptions(Options{Address: "flag:2", Namespace: "flagged"})
	require.NoError(t, err)
	require.Equal(t, "flag:2", o.HostPort)
	require.Equal(t, "flagged", o.Namespace)
	require.NotNil(t, o.Credentials)

	o, _, err = ClientOptions(Options{Address: "127.0.0.1:9", Plain: true})
	require.NoError(t, err)
	require.Nil(t, o.Credentials, "a server in this process gets no key")

	t.Setenv("TEMPORAL_PROFILE", "nope")
	_, _, err = ClientOptions(Options{})
	require.Regexp(t, "^the settings of Temporal cannot be used: unable to find profile nope .*; correct temporal.toml", err)
	t.Setenv("TEMPORAL_PROFILE", "")

	_, _, err = ClientOptions(Options{Address: "nonsense"})
	require.ErrorContains(t, err, "host:port")
}
