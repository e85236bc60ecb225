package config

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
)

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
