package devserver

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
)

const loopback = "127.0.0.1"

// ports has the port of each service, for gRPC; callers use only the frontend's. A server
// with a token has an inner frontend for the other services.
type ports map[primitives.ServiceName]int

func (p ports) hosts() map[primitives.ServiceName]static.Hosts {
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, port := range p {
		hosts[name] = static.SingleLocalHost(address(loopback, port))
	}
	return hosts
}

// names lists the services that run. A brief server does without the worker service,
// though others want to know its port.
func (p ports) names(brief bool) (names []string) {
	for name := range p {
		if !brief || name != primitives.WorkerService {
			names = append(names, string(name))
		}
	}
	return names
}

func choosePorts(frontend int, private bool) (p ports, err error) {
	p = ports{primitives.FrontendService: frontend, primitives.HistoryService: 0, primitives.MatchingService: 0, primitives.WorkerService: 0}
	if private {
		p[primitives.InternalFrontendService] = 0
	}
	for name, port := range p {
		if port == 0 && err == nil {
			p[name], err = freePort()
		}
	}
	return p, err
}

func freePort() (port int, err error) {
	listener, err := net.Listen("tcp4", address(loopback, 0))
	if err != nil {
		return 0, fmt.Errorf("find a free port on %s: %w", loopback, err)
	}
	return portOf(listener), listener.Close()
}

// listen opens a port; instead says what to do where it is taken.
func listen(host string, port int, instead string) (net.Listener, error) {
	listener, err := net.Listen("tcp4", address(host, port))
	if isPortTaken(err) {
		return nil, fmt.Errorf("port %d on %s is in use: stop the program that listens there, or %s: %w", port, host, instead, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on port %d of %s: %w; give a port that you may use, at an address of this host", port, host, err)
	}
	return listener, nil
}

func checkPort(host string, port int) error {
	if port == 0 && host == loopback {
		return nil
	}
	listener, err := listen(host, port, otherPort)
	if err != nil {
		return err
	}
	return listener.Close()
}

const otherPort, otherUIPort = "give another port for the server", "give another port for the Web UI"

func isPortTaken(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
