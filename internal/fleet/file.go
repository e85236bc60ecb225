package fleet

import (
	"cmp"
	"fmt"
	"os"

	"github.com/google/renameio/v2"
	"go.temporal.io/sdk/contrib/envconfig"
	"google.golang.org/grpc/resolver"

	"github.com/gpumux/gpumux/internal/names"
)

// File is a connection file: a temporal.toml, as all of Temporal's SDKs and its CLI read
// it, with fields of our own. Whoever has it may use the server.
type File struct {
	// Address is host:port, and Token what the server asks for.
	Address, Token string
	// Authority is the certificate, in PEM, of who has signed that of the server.
	Authority []byte
	// Store is the URL of the workers' store, and StoreID its identity; both may be empty.
	Store, StoreID string
}

const storeField, storeIDField = "gpumux_store", "gpumux_store_id"

// Write replaces the file at once.
func (f File) Write(path string) error {
	c := envconfig.ClientConfig{Profiles: map[string]*envconfig.ClientConfigProfile{envconfig.DefaultConfigFileProfile: {
		Address: f.Address, Namespace: "default", TLS: &envconfig.ClientConfigTLS{ServerCACertData: f.Authority, ServerName: names.Server},
		GRPCMeta: map[string]string{"authorization": "Bearer " + f.Token},
	}}}
	text, err := c.ToTOML(envconfig.ClientConfigToTOMLOptions{AdditionalProfileFields: map[string]map[string]any{
		envconfig.DefaultConfigFileProfile: {storeField: f.Store, storeIDField: f.StoreID}}})
	if err != nil {
		return err
	}
	file, err := renameio.TempFile("", path) // with mode 0600, whatever is there
	if err != nil {
		return err
	}
	defer file.Cleanup()
	if _, err := file.Write(text); err != nil {
		return err
	}
	return file.CloseAtomicallyReplace()
}

// read reads the connection file alone, or what Temporal's conventions say, and our own
// fields in the file that names the server.
func (o Options) read() (p envconfig.ClientConfigProfile, f File, err error) {
	how := envconfig.LoadClientConfigProfileOptions{ConfigFilePath: o.File}
	if o.File != "" {
		how.ConfigFileProfile, how.DisableEnv = envconfig.DefaultConfigFileProfile, true
	}
	text, missing := os.ReadFile(cmp.Or(o.File, os.Getenv("TEMPORAL_CONFIG_FILE"), envconfig.DefaultConfigFilePath()))
	if missing != nil && (o.File != "" || os.Getenv("TEMPORAL_CONFIG_FILE") != "") {
		return p, f, missing
	}
	if p, err = envconfig.LoadClientConfigProfile(how); err != nil {
		return p, f, err
	}
	if o.File != "" && p.Address == "" {
		return p, f, fmt.Errorf("%s names no server", o.File)
	}
	var all envconfig.ClientConfig
	ours := map[string]map[string]any{}
	err = all.FromTOML(text, envconfig.ClientConfigFromTOMLOptions{AdditionalProfileFields: ours})
	name := cmp.Or(how.ConfigFileProfile, os.Getenv("TEMPORAL_PROFILE"), envconfig.DefaultConfigFileProfile)
	if found := all.Profiles[name]; found != nil && found.Address == p.Address {
		f.Store, _ = ours[name][storeField].(string)
		f.StoreID, _ = ours[name][storeIDField].(string)
	}
	return p, f, err
}

// fileResolver resolves addresses for gRPC. It reads the file anew when a connection is
// lost: the server may have moved.
type fileResolver struct {
	read func() string
	// last is the address that stands while the file cannot be read.
	last string
	conn resolver.ClientConn
}

// Scheme is that of addresses without one.
func (r *fileResolver) Scheme() string { return "dns" }

func (r *fileResolver) Build(_ resolver.Target, conn resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	built := &fileResolver{r.read, r.last, conn}
	built.ResolveNow(resolver.ResolveNowOptions{})
	return built, nil
}

func (r *fileResolver) ResolveNow(resolver.ResolveNowOptions) {
	r.last = cmp.Or(r.read(), r.last)
	_ = r.conn.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: r.last}}})
}

func (r *fileResolver) Close() {}
