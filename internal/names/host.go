package names

import (
	"net"
	"strings"
)

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
