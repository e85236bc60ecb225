package names

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"regexp"
	"strings"
)

// Queue carries workflows and light activities.
const Queue = "gpumux"

var poolName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Pool returns what is wrong with a pool's name, or nil.
func Pool(name string) error {
	if !poolName.MatchString(name) {
		return fmt.Errorf("pool name %.80q: use 1 to 63 lower-case letters, digits and dashes, such as gpu or h200-16g", name)
	}
	return nil
}

func PoolQueue(pool string) string { return Queue + "." + pool }

// maxFairnessKey is the most bytes of a fairness key that the server takes.
const maxFairnessKey = 64

// FairnessKey is the key by which a map shares pools: its ID, or that one's SHA-256.
func FairnessKey(id string) string {
	if len(id) <= maxFairnessKey {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// Server is the name in the certificate of a server of our own, whose host may change.
const Server = "gpumux"

// Loopback reports whether an address, with or without a port, names this host itself. In
// a request any other name may be a web page's that leads here.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}
