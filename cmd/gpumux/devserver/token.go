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

// token is required of callers; an empty one lets everybody on this machine in.
type token string

func (t token) header() string { return "Bearer " + string(t) }

// key is for browsers, which send it to anything on this host: not the token itself.
func (t token) key() string {
	if t == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("web UI " + string(t)))
	return hex.EncodeToString(sum[:16])
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
			Reason: "this server asks for the token of who started it: take over the file of variables that gpumux dev --private names"}, nil
	}
	return authorization.Result{Decision: authorization.DecisionAllow}, nil
}

// serviceTLS lets only clients with a key of this process reach the services of a server
// with a token, whose own ports need none.
type serviceTLS struct{ server, client *tls.Config }

func newServiceTLS() (*serviceTLS, error) {
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
	certificates := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key, Leaf: certificate}}
	return &serviceTLS{
		server: &tls.Config{Certificates: certificates, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS13},
		client: &tls.Config{Certificates: certificates, RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS13},
	}, nil
}

// The methods below implement encryption.TLSConfigProvider.

func (s *serviceTLS) GetInternodeServerConfig() (*tls.Config, error)           { return s.server, nil }
func (s *serviceTLS) GetInternodeClientConfig() (*tls.Config, error)           { return s.client, nil }
func (s *serviceTLS) GetFrontendServerConfig() (*tls.Config, error)            { return nil, nil }
func (s *serviceTLS) GetFrontendClientConfig() (*tls.Config, error)            { return nil, nil }
func (s *serviceTLS) GetRemoteClusterClientConfig(string) (*tls.Config, error) { return nil, nil }
func (s *serviceTLS) GetExpiringCerts(time.Duration) (expiring, expired encryption.CertExpirationMap, err error) {
	return nil, nil, nil
}
