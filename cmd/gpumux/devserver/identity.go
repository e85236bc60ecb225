package devserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
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
