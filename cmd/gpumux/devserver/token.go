package devserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/rpc/encryption"

	"github.com/gpumux/gpumux/internal/names"
)

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
