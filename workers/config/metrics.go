package config

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Metrics says where metrics are served, and how they are guarded. In the file it is an
// address alone or a mapping. An address that other machines reach needs TLS, a token, or
// Open.
type Metrics struct {
	// Address is host:port; no host is loopback. Default: nothing is served.
	Address string `json:"address"`
	// Cert and Key are PEM files for TLS. They are read again for each connection.
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// Token is a file with the bearer token that /metrics asks for.
	Token string `json:"token"`
	// Open says that something else, such as a proxy or a NetworkPolicy, is the guard.
	Open bool `json:"open"`
}

// UnmarshalJSONFrom reads an address or all fields.
func (m *Metrics) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if in.PeekKind() == '"' {
		return json.UnmarshalDecode(in, &m.Address)
	}
	type fields Metrics
	return json.UnmarshalDecode(in, (*fields)(m))
}

// MetricsAddress is the address to listen on; without a host it is loopback.
func MetricsAddress(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("%q is not host:port; write 127.0.0.1:9464", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q: the port has to be a number up to 65535; write 127.0.0.1:9464", text)
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port), nil
}

// check reports to r bad addresses, and metrics that strangers could read.
func (m Metrics) check(r *report, c Config) {
	if m == (Metrics{}) {
		return
	}
	address, err := MetricsAddress(m.Address)
	if err != nil {
		r.add("metrics", "%v", err)
		return
	}
	switch host, _, _ := net.SplitHostPort(address); {
	case (m.Cert == "") != (m.Key == ""):
		r.add("metrics", "TLS needs both cert and key")
	case m.Cert == "" && m.Token == "" && !m.Open && !loopback(host):
		r.add("metrics", "other machines reach %s: give cert and key, or token, or, where a proxy or a NetworkPolicy is the guard, "+
			"write {address: %q, open: true}; 127.0.0.1 is for this machine alone", m.Address, m.Address)
	}
	if _, err := c.MetricsTLS(); err != nil {
		r.add("metrics.cert", "%v", err)
	}
	if _, err := c.MetricsToken(); err != nil {
		r.add("metrics.token", "%v", err)
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// MetricsTLS is the TLS of the metrics, or nil. A renewed certificate needs no restart.
func (c Config) MetricsTLS() (*tls.Config, error) {
	if c.Metrics.Cert == "" || c.Metrics.Key == "" {
		return nil, nil
	}
	load := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(c.path(c.Metrics.Cert), c.path(c.Metrics.Key))
		return &pair, err
	}
	if _, err := load(nil); err != nil {
		return nil, fmt.Errorf("read the certificate and its key: %w", err)
	}
	return &tls.Config{GetCertificate: load, MinVersion: tls.VersionTLS12}, nil
}

// MetricsToken is the bearer token of the metrics, or empty.
func (c Config) MetricsToken() (string, error) {
	if c.Metrics.Token == "" {
		return "", nil
	}
	data, err := os.ReadFile(c.path(c.Metrics.Token))
	token := strings.TrimSpace(string(data))
	if err == nil && token == "" {
		err = errors.New(c.path(c.Metrics.Token) + " is empty; `openssl rand -hex 32` makes a token")
	}
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return token, nil
}
