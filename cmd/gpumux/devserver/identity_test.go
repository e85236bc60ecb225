package devserver

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/gpumux/gpumux/internal/names"
)

// call connects as one does who has a certificate's authority and a token; without an
// authority in plain text.
func call(t *testing.T, s *Server, authority []byte, token string) error {
	t.Helper()
	o := client.Options{HostPort: s.Address(), Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))}
	if authority != nil {
		known := x509.NewCertPool()
		require.True(t, known.AppendCertsFromPEM(authority))
		o.ConnectionOptions.TLS = &tls.Config{RootCAs: known, ServerName: names.Server}
	}
	if token != "" {
		o.Credentials = client.NewAPIKeyStaticCredentials(token)
		o.ConnectionOptions.TLSDisabled = authority == nil
	}
	c, err := client.DialContext(t.Context(), o)
	if err == nil {
		c.Close()
	}
	return err
}

func TestIdentity_OnlyWhoHasItGetsIn(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := start(t, Options{Bind: "0.0.0.0", Data: data})
	require.NoError(t, call(t, s, s.Authority(), s.Token()))
	other, err := loadIdentity("")
	require.NoError(t, err)
	require.ErrorAs(t, call(t, s, s.Authority(), ""), new(*serviceerror.PermissionDenied))
	require.ErrorAs(t, call(t, s, s.Authority(), string(other.token)), new(*serviceerror.PermissionDenied))
	require.ErrorContains(t, call(t, s, other.authority, s.Token()), "certificate signed by unknown authority")
	require.Error(t, call(t, s, nil, s.Token()))

	again, err := loadIdentity(data)
	require.NoError(t, err)
	require.Equal(t, [...]string{s.Token(), string(s.Authority())}, [...]string{string(again.token), string(again.authority)}, "who has it keeps it")
}

// OpenSSL takes a certificate whose subject is its issuer for one that nobody signed, and
// Java wants names.
func TestIdentity_NamesWhoSigned(t *testing.T) {
	t.Parallel()
	i, err := loadIdentity("")
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(i.certificate.Certificate[0])
	require.NoError(t, err)
	require.NotEmpty(t, leaf.Issuer.String())
	require.NotEqual(t, leaf.Subject.String(), leaf.Issuer.String())
	require.NotEmpty(t, leaf.AuthorityKeyId)
}

// A folder that others may write could have a key of theirs.
func TestIdentity_OfOthers(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	path := filepath.Join(data, identityFile)
	first, err := loadIdentity(data)
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.NoError(t, os.Chmod(path, 0o640))
	_, err = loadIdentity(data)
	require.ErrorContains(t, err, "others may have the key of the server in "+path)
	require.NoError(t, os.Chmod(path, 0o600))
	again, err := loadIdentity(data)
	require.NoError(t, err)
	require.Equal(t, first.token, again.token)
	require.NoError(t, os.Rename(path, path+"2"))
	require.NoError(t, os.Symlink(path+"2", path))
	_, err = loadIdentity(data)
	require.ErrorContains(t, err, "others may have the key")
}

func TestIdentity_OfAnAddressThatIsNotHere(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	_, err := Start(t.Context(), Options{Bind: "192.0.2.7", Data: data})
	require.ErrorContains(t, err, "192.0.2.7: ")
	require.NoDirExists(t, data)
}

func TestIdentity_Damaged(t *testing.T) {
	t.Parallel()
	text := makeIdentity()
	first, rest, found := strings.Cut(string(text), "-----END CERTIFICATE-----\n")
	require.True(t, found)
	for name, damaged := range map[string]string{"empty": "", "half": string(text[:len(text)/2]), "one certificate": first + "-----END CERTIFICATE-----\n" + rest[strings.Index(rest, "-----BEGIN PRIVATE"):]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(data, identityFile), []byte(damaged), 0o600))
			_, err := Start(t.Context(), Options{Bind: loopback, Data: data, Headless: true})
			require.ErrorContains(t, err, "read "+filepath.Join(data, identityFile)+": ")
			require.ErrorContains(t, err, "delete it")
		})
	}
}
