package devserver

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const listening = "0A" // the state in /proc/net/tcp

// Whatever the server opens is on loopback: services and UI, nothing for the HTTP API,
// membership, metrics or profiling.
func TestListen_LoopbackOnly(t *testing.T) {
	before := listeners(t)
	start(t, Options{})
	opened := 0
	for inode, address := range listeners(t) {
		if _, old := before[inode]; !old {
			opened++
			require.True(t, strings.HasPrefix(address, "0100007F:"), "listens on %s", address)
		}
	}
	require.Equal(t, 5, opened, "four services and the UI")
}

// A server for others opens its frontend to them, and nothing else.
func TestListen_OneAddressForOthers(t *testing.T) {
	before := listeners(t)
	start(t, Options{Bind: "0.0.0.0"})
	beyond := 0
	for inode, address := range listeners(t) {
		if _, old := before[inode]; !old && !strings.HasPrefix(address, "0100007F:") {
			beyond++
		}
	}
	require.Equal(t, 1, beyond)
}

// A web page cannot speak gRPC, and nothing answers its HTTP.
func TestListen_AnswersNoWebPage(t *testing.T) {
	for token, services := range map[string]int{"": 4, secret: 5} {
		s := start(t, Options{Headless: true, Token: token})
		addresses := ownAddresses(t)
		require.Len(t, addresses, services)
		for _, address := range addresses {
			for _, path := range []string{"/api/v1/namespaces", "/namespaces/default/task-queues/gpumux/nexus-services/gpumux/map"} {
				answer, err := http.Post("http://"+address+path, "text/plain", strings.NewReader("{}"))
				if err == nil {
					answer.Body.Close()
				}
				require.Error(t, err, address)
				require.NotErrorIs(t, err, syscall.ECONNREFUSED)
			}
		}
		require.NoError(t, s.Stop())
	}
}

// listeners maps the inodes of this process's listening TCP sockets to their addresses in
// hexadecimal.
func listeners(t *testing.T) map[string]string {
	t.Helper()
	ours := map[string]bool{}
	descriptors, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err == nil {
			ours[target] = true
		}
	}
	found := map[string]string{}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(table)
		if os.IsNotExist(err) {
			continue // no IPv6
		}
		require.NoError(t, err)
		for _, line := range strings.Split(string(text), "\n") {
			fields := strings.Fields(line)
			if len(fields) > 9 && fields[3] == listening && ours[fmt.Sprintf("socket:[%s]", fields[9])] {
				found[fields[9]] = fields[1]
			}
		}
	}
	return found
}

// ownAddresses are the host:port that this process listens on.
func ownAddresses(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, hex := range listeners(t) {
		_, port, _ := strings.Cut(hex, ":")
		n, err := strconv.ParseUint(port, 16, 16)
		require.NoError(t, err)
		all = append(all, address(loopback, int(n)))
	}
	return all
}
