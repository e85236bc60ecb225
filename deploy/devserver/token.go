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
	"encoding/hex"
	"fmt"
	"math/big"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/rpc/encryption"
)

// token is what callers must show; empty lets everybody on this machine in.
type token string

// header is the value of the callers' authorization header.
func (t token) header() string { return "Bearer " + string(t) }

// key is what the Web UI asks a browser for. A browser shows it to whatever listens on this host, so it is not the token.
func (t token) key() string {
	if t == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("web UI " + string(t)))
	return hex.EncodeToString(sum[:16])
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// GetClaims is the ClaimMapper's: whoever shows the token may do everything.
func (t token) GetClaims(info *authorization.AuthInfo) (*authorization.Claims, error) {
	if !same(info.AuthToken, t.header()) {
		return &authorization.Claims{}, nil
	}
	return &authorization.Claims{System: authorization.RoleAdmin}, nil
}

// Authorize is the Authorizer's.
func (t token) Authorize(_ context.Context, claims *authorization.Claims, _ *authorization.CallTarget) (authorization.Result, error) {
	if claims == nil || claims.System != authorization.RoleAdmin {
		return authorization.Result{Decision: authorization.DecisionDeny,
			Reason: "this server asks for the token of who started it: take over the file of variables that gpumux dev --private names"}, nil
	}
	return authorization.Result{Decision: authorization.DecisionAllow}, nil
}

// between is how the services of a server with a token know one another: their ports on loopback, which ask for no token, take
// connections only from who has the key, and that lies in this process alone.
type between struct{ server, client *tls.Config }

func newBetween() (*between, error) {
	const name = "gpumux"
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for the services: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(100, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the services: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the services' certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	own := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key, Leaf: certificate}}
	return &between{
		server: &tls.Config{Certificates: own, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS13},
		client: &tls.Config{Certificates: own, RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS13},
	}, nil
}

// What follows is encryption.TLSConfigProvider.

func (b *between) GetInternodeServerConfig() (*tls.Config, error)           { return b.server, nil }
func (b *between) GetInternodeClientConfig() (*tls.Config, error)           { return b.client, nil }
func (b *between) GetFrontendServerConfig() (*tls.Config, error)            { return nil, nil }
func (b *between) GetFrontendClientConfig() (*tls.Config, error)            { return nil, nil }
func (b *between) GetRemoteClusterClientConfig(string) (*tls.Config, error) { return nil, nil }
func (b *between) GetExpiringCerts(time.Duration) (expiring, expired encryption.CertExpirationMap, err error) {
	return nil, nil, nil
}
