package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// TestPrivate_Dev is another user's commands beside `gpumux dev --listen 127.0.0.1`, and
// then its owner's.
func TestPrivate_Dev(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	port, uiPort := programtest.FreePort(t), programtest.FreePort(t)
	dev := s.begin("dev", "--listen", "127.0.0.1:"+port, "--tasks", ".", "--ui-port", uiPort, "--data", "data", "--slots", "2")
	dev.ready()

	other := &shell{t: t, dir: s.dir, env: append([]string{"TEMPORAL_ADDRESS=127.0.0.1:" + port}, s.env...)}
	p := other.run(3, "map", "step:double", "--range", "21:22", "--pool", "cpu")
	require.Contains(t, p.stderr.String(), "connect to a server of `gpumux dev --listen` with the file that it names")
	guess := &shell{t: t, dir: s.dir, env: append([]string{"TEMPORAL_CONFIG_FILE=data/temporal.toml", "TEMPORAL_GRPC_META_AUTHORIZATION=Bearer guess"}, s.env...)}
	require.Contains(t, guess.run(3, "ls").stderr.String(), "Request unauthorized.")
	page, err := http.Get("http://127.0.0.1:" + uiPort + "/api/v1/namespaces")
	require.NoError(t, err)
	require.NoError(t, page.Body.Close())
	require.Equal(t, http.StatusForbidden, page.StatusCode)

	file := s.path("data/temporal.toml")
	require.Contains(t, dev.stderr.String(), "export TEMPORAL_CONFIG_FILE="+file)
	e := &example{shell: s}
	e.link()
	out, code := e.sh(s.dir, "export TEMPORAL_CONFIG_FILE="+file+"; bin/gpumux map step:double --range 21:22 --pool cpu --out - --quiet")
	require.Zero(t, code)
	require.Equal(t, "{\"index\":0,\"value\":42}\n", out)
	_, link, ok := strings.Cut(dev.stderr.String(), "web UI     ")
	require.True(t, ok)
	link, _, _ = strings.Cut(link, "\n")
	page, err = http.Get(link)
	require.NoError(t, err)
	require.NoError(t, page.Body.Close())
	require.Equal(t, http.StatusSeeOther, page.Request.Response.StatusCode, "the key goes into a cookie")
}

// Nobody but its own command gets into the server of `map --local`, at none of its ports,
// nor reads its files.
func TestPrivate_Local(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	require.NoError(t, os.MkdirAll(s.path("state/gpumux/local/mine"), 0o755))
	p := s.begin("map", "step.py:gate", "--range", "0:6", "--local", "--id", "mine", "--option", "chunk=1", "--out", "r.jsonl")
	rig.Wait(t, func() bool { return len(s.calls()) == 5 }, time.Minute, 20*time.Millisecond, "%s", &p.stderr)
	ports := listening(t, p.Process.Pid)
	require.NotEmpty(t, ports)
	for _, address := range ports {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err = workflowservice.NewWorkflowServiceClient(conn).ListNamespaces(ctx, &workflowservice.ListNamespacesRequest{})
		cancel()
		require.NoError(t, conn.Close())
		require.Contains(t, []codes.Code{codes.PermissionDenied, codes.Unavailable}, status.Code(err), "%s: %v", address, err)
	}
	for _, name := range []string{"store", "temporal.db", "temporal.lock"} {
		info, err := os.Stat(s.path("state/gpumux/local/mine/" + name))
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, name)
	}
	s.write("open", "")
	require.Zero(t, p.code(), "%s", &p.stderr)
	require.Len(t, s.lines(s.file("r.jsonl")), 6)
}

// listening are the addresses that a process listens on.
func listening(t *testing.T, pid int) (addresses []string) {
	t.Helper()
	ours := map[string]bool{}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil {
			ours[target] = true
		}
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 9 && fields[3] == "0A" && ours["socket:["+fields[9]+"]"] {
			_, hex, _ := strings.Cut(fields[1], ":")
			port, err := strconv.ParseUint(hex, 16, 16)
			require.NoError(t, err)
			addresses = append(addresses, net.JoinHostPort("127.0.0.1", strconv.FormatUint(port, 10)))
		}
	}
	return addresses
}
