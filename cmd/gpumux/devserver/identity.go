package devserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/rpc/encryption"

	"github.com/gpumux/gpumux/internal/names"
)

// identityFile is the file of a data folder that has the identity of its server.
const identityFile = "identity.pem"

// identity is by what clients know a server, and it them. The token follows from the key.
type identity struct {
	certificate tls.Certificate
	authority   []byte // PEM
	token       token
}

func (i identity) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(i.authority)
	return pool
}

// loadIdentity reads the identity of a data folder, and makes it when there is none.
func loadIdentity(folder string) (identity, error) {
	if folder == "" {
		return parseIdentity(makeIdentity())
	}
	path := filepath.Join(folder, identityFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(folder, 0o700); err == nil {
			err = renameio.WriteFile(path, makeIdentity(), 0o600)
		}
		if err != nil {
			return identity{}, fmt.Errorf("keep the key of the server: %w; give another folder", err)
		}
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode() != 0o600 {
		err = fmt.Errorf("others may have the key of the server in %s, which is %s; delete it, and give a folder where files keep their mode", path, info.Mode())
	}
	if err != nil {
		return identity{}, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return identity{}, err
	}
	i, err := parseIdentity(text)
	if err != nil {
		return identity{}, fmt.Errorf("read %s: %w; delete it, and hand out the next connection file", path, err)
	}
	return i, nil
}

// makeIdentity makes a certificate, that of its authority, and its key, as PEM. Nobody
// has the authority's key afterwards. Clients other than Go's want the two apart.
func makeIdentity() []byte {
	authority := &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority of " + names.Server}, SubjectKeyId: []byte{1}, SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().AddDate(100, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	server := &x509.Certificate{
		Subject: pkix.Name{CommonName: names.Server}, SerialNumber: big.NewInt(2), DNSNames: []string{names.Server}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	authorityKey, key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return slices.Concat(
		block("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, server, authority, key.Public(), authorityKey))),
		block("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey))),
		block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key))))
}

// must is for what fails only where the system has no random numbers.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

func parseIdentity(text []byte) (i identity, err error) {
	if i.certificate, err = tls.X509KeyPair(text, text); err != nil {
		return i, err
	}
	if n := len(i.certificate.Certificate); n != 2 {
		return i, fmt.Errorf("%d certificates, and not two", n)
	}
	key, err := x509.MarshalPKCS8PrivateKey(i.certificate.PrivateKey)
	if err != nil {
		return i, err
	}
	sum := sha256.Sum256(append([]byte("token "), key...))
	i.token = token(hex.EncodeToString(sum[:16]))
	i.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.certificate.Certificate[1]})
	return i, nil
}

// token is required of callers; an empty one lets everybody on this machine in.
type token string

func (t token) header() string { return "Bearer " + string(t) }

// key is for browsers, which send it to anything on this host: not the token itself.
func (t token) key() string {
	sum := sha256.Sum256([]byte("web UI " + string(t)))
	return hex.EncodeToString(sum[:16])
}

func (t token) query() string {
	if t == "" {
		return ""
	}
	return "?key=" + t.key()
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// AuthInfoRequired implements authorization.ClaimMapperWithAuthInfoRequired.
func (t token) AuthInfoRequired() bool { return t != "" }

// GetClaims implements authorization.ClaimMapper: the token allows everything.
func (t token) GetClaims(info *authorization.AuthInfo) (*authorization.Claims, error) {
	if t != "" && !same(info.AuthToken, t.header()) {
		return &authorization.Claims{}, nil
	}
	return &authorization.Claims{System: authorization.RoleAdmin}, nil
}

// Authorize implements authorization.Authorizer.
func (t token) Authorize(_ context.Context, claims *authorization.Claims, _ *authorization.CallTarget) (authorization.Result, error) {
	if claims == nil || claims.System != authorization.RoleAdmin {
		return authorization.Result{Decision: authorization.DecisionDeny,
			Reason: "this server asks for the token of who started it: connect with the file that gpumux dev --listen names"}, nil
	}
	return authorization.Result{Decision: authorization.DecisionAllow}, nil
}

// serviceTLS lets only clients with a key of this process reach the services of a server
// with a token, whose own ports need none.
type serviceTLS struct{ server, client, frontend *tls.Config }

func newServiceTLS(id identity) (*serviceTLS, error) {
	s, err := loadIdentity("")
	if err != nil {
		return nil, err
	}
	certificates := []tls.Certificate{s.certificate}
	t := &serviceTLS{
		server: &tls.Config{Certificates: certificates, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: s.pool(), MinVersion: tls.VersionTLS13},
		client: &tls.Config{Certificates: certificates, RootCAs: s.pool(), ServerName: names.Server, MinVersion: tls.VersionTLS13},
	}
	if id.token != "" {
		t.frontend = &tls.Config{Certificates: []tls.Certificate{id.certificate}, MinVersion: tls.VersionTLS12}
	}
	return t, nil
}

// The methods below implement encryption.TLSConfigProvider.

func (s *serviceTLS) GetInternodeServerConfig() (*tls.Config, error)           { return s.server, nil }
func (s *serviceTLS) GetInternodeClientConfig() (*tls.Config, error)           { return s.client, nil }
func (s *serviceTLS) GetFrontendServerConfig() (*tls.Config, error)            { return s.frontend, nil }
func (s *serviceTLS) GetFrontendClientConfig() (*tls.Config, error)            { return nil, nil }
func (s *serviceTLS) GetRemoteClusterClientConfig(string) (*tls.Config, error) { return nil, nil }
func (s *serviceTLS) GetExpiringCerts(time.Duration) (expiring, expired encryption.CertExpirationMap, err error) {
	return nil, nil, nil
}
