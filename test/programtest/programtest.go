// Package programtest gives tests the all-in-one program, a place for its output, ports,
// and processes that end with the test binary.
//
// It owns the folder of the program, which it builds once for a test binary that asks. It
// knows nothing of servers, so test binaries for other machines stay small. What it made
// is gone when Main returns.
package programtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// built is the folder of the program, "" before it was built.
var built string

// Binary is the path of gpumux: that in GPUMUX_BINARY, or one built by the first call.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var binary = sync.OnceValues(func() (_ string, err error) {
	os.Getenv("GPUMUX_TEST_SUM") // go test runs again where what it has read has changed
	if path := os.Getenv("GPUMUX_BINARY"); path != "" {
		return filepath.Abs(path)
	}
	if built, err = os.MkdirTemp("", "gpumux-program-"); err != nil {
		return "", err
	}
	path := filepath.Join(built, "gpumux")
	const source = "github.com/gpumux/gpumux/cmd/gpumux"
	out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, source).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build gpumux (or give a built one in GPUMUX_BINARY): %w\n%s", err, out)
	}
	return path, nil
})

// ports counts those that FreePort has returned.
var ports atomic.Int32

// FreePort is below those that the system gives to whoever asks for any, and returned
// once: nobody takes it before it is used.
func FreePort(t testing.TB) string {
	t.Helper()
	const first, end = 16384, 32768
	for range end - first {
		port := strconv.Itoa(first + (61*os.Getpid()+int(ports.Add(1)))%(end-first))
		if listener, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			_ = listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// Main runs the tests of a TestMain, deletes the program and returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	return code
}

// Screen collects output while it is written. It may be read at the same time.
type Screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to the output.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// String is the output so far.
func (s *Screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
