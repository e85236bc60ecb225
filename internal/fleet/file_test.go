package fleet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/resolver"
)

func TestFile_IsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "temporal.toml")
	require.NoError(t, os.WriteFile(path, []byte("of before"), 0o644))
	require.NoError(t, File{Address: "gpu1:7233", Token: "secret", Authority: []byte("none"), Store: "file:///shared", StoreID: "A"}.Write(path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	p, f, err := Options{File: path}.read()
	require.NoError(t, err)
	require.Equal(t, File{Store: "file:///shared", StoreID: "A"}, f)
	require.Equal(t, "gpu1:7233", p.Address)
	require.Equal(t, "default", p.Namespace)
	require.Equal(t, map[string]string{"authorization": "Bearer secret"}, p.GRPCMeta)
	require.Equal(t, "gpumux", p.TLS.ServerName)
	require.Equal(t, "none", string(p.TLS.ServerCACertData))

	t.Setenv("TEMPORAL_CONFIG_FILE", path)
	t.Setenv("TEMPORAL_ADDRESS", "elsewhere:1")
	p, f, err = Options{}.read()
	require.NoError(t, err)
	require.Equal(t, "elsewhere:1", p.Address, "by Temporal's conventions a variable wins")
	require.Empty(t, f, "which names a server with another store")
	t.Setenv("TEMPORAL_ADDRESS", "gpu1:7233")
	p, _, err = Options{File: path}.read()
	require.NoError(t, err)
	require.Equal(t, "gpu1:7233", p.Address, "a file that is named wins over all")
	require.NoError(t, os.WriteFile(path, []byte("[profile.default]\naddress = \"gpu1:7233\"\ngpumux_store = \"file:///shared\"\n"), 0o600))
	o, f, err := ClientOptions(Options{})
	require.NoError(t, err)
	require.Equal(t, File{Store: "file:///shared"}, f)
	require.Empty(t, o.ConnectionOptions.DialOptions, "a name of a cluster is for DNS, whose addresses take turns")
	_, f, err = ClientOptions(Options{Address: "127.0.0.1:7233"})
	require.NoError(t, err)
	require.Empty(t, f, "a server that is named otherwise has another store")
}

func TestFile_ThatIsNone(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"empty": "", "of another kind": "not = [toml", "without an address": "[profile.default]\nnamespace = \"n\"\n"} {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, _, err := ClientOptions(Options{File: path})
		require.ErrorAs(t, err, new(*ConnectError), name)
		require.ErrorContains(t, err, "give the file that `gpumux dev --listen` has written")
	}
	none := filepath.Join(folder, "none")
	_, _, err := ClientOptions(Options{File: none})
	require.ErrorContains(t, err, "no such file")
	t.Setenv("TEMPORAL_CONFIG_FILE", none)
	_, _, err = ClientOptions(Options{})
	require.ErrorContains(t, err, "no such file", "not another server in its place")
}

// states are what a connection was told.
type states struct {
	resolver.ClientConn
	all []string
}

func (s *states) UpdateState(state resolver.State) error {
	s.all = append(s.all, state.Addresses[0].Addr)
	return nil
}

func TestFileResolver_KeepsTheLastAddress(t *testing.T) {
	t.Parallel()
	seen, now := &states{}, ""
	built, err := (&fileResolver{read: func() string { return now }, last: "first:1"}).Build(resolver.Target{}, seen, resolver.BuildOptions{})
	require.NoError(t, err)
	for _, now = range []string{"second:2", "", "third:3"} {
		built.ResolveNow(resolver.ResolveNowOptions{})
	}
	require.Equal(t, []string{"first:1", "second:2", "second:2", "third:3"}, seen.all)
}
