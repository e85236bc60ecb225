package workers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux/workers/config"
)

// told is what the notice says, asked for every millisecond; early is run once the host
// was asked some times, while no notice may be there.
func told(t *testing.T, n config.Notice, log *zap.Logger, early func()) string {
	t.Helper()
	w := &Worker{config: config.Config{Notice: n}, log: log, evicted: make(chan string, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.awaitEviction(t.Context(), time.Millisecond)
	}()
	early()
	<-ended
	return <-w.Evicted()
}

func TestEviction_AFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notice")
	said := told(t, config.Notice{File: path}, zap.NewNop(), func() { require.NoError(t, os.WriteFile(path, nil, 0o600)) })
	require.Equal(t, path+" is there", said)
}

// A service that is away, has no such page, or answers FALSE or nothing gives no notice.
func TestEviction_AURL(t *testing.T) {
	var asked atomic.Int32
	late := make(chan struct{})
	answers := []func(http.ResponseWriter){
		func(to http.ResponseWriter) { to.WriteHeader(http.StatusNotFound); _, _ = to.Write([]byte("TRUE")) },
		func(to http.ResponseWriter) { _, _ = to.Write([]byte("FALSE\n")) },
		func(http.ResponseWriter) {},
		func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		func(to http.ResponseWriter) { close(late); _, _ = to.Write([]byte("TRUE")) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" {
			to.WriteHeader(http.StatusForbidden)
			return
		}
		answers[asked.Add(1)-1](to)
	}))
	defer server.Close()
	core, logged := observer.New(zap.WarnLevel)
	said := told(t, config.Notice{URL: server.URL + "/preempted", Headers: map[string]string{"Metadata-Flavor": "Google"}}, zap.New(core), func() { <-late })
	require.Equal(t, server.URL+`/preempted answers "TRUE"`, said)
	require.EqualValues(t, len(answers), asked.Load())
	require.Equal(t, 1, logged.Len(), "one warning, however often nobody answers")
}

// Amazon's metadata service wants a token first, and has the page once there is a notice.
func TestEviction_AURLWithAToken(t *testing.T) {
	var tokens atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(to http.ResponseWriter, r *http.Request) {
		require.NotEmpty(t, r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds"))
		tokens.Add(1)
		_, _ = to.Write([]byte("secret"))
	})
	mux.HandleFunc("GET /latest/meta-data/spot/instance-action", func(to http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-aws-ec2-metadata-token") != "secret":
			to.WriteHeader(http.StatusUnauthorized)
		case tokens.Load() < 3:
			to.WriteHeader(http.StatusNotFound)
		default:
			_, _ = to.Write([]byte(`{"action":"terminate"}`))
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	n := config.Notice{URL: server.URL + "/latest/meta-data/spot/instance-action", Token: server.URL + "/latest/api/token"}
	require.Contains(t, told(t, n, zap.NewNop(), func() {}), "terminate")
}

func TestEviction_EndsWithTheWorker(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, n := range []config.Notice{{}, {File: filepath.Join(t.TempDir(), "none")}, {URL: "http://127.0.0.1:1/"}} {
		(&Worker{config: config.Config{Notice: n}, log: zap.NewNop()}).awaitEviction(ctx, time.Hour)
	}
}
