package sharing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/mps"
	"github.com/gpumux/gpumux/internal/process"
)

const (
	// startLimit bounds a daemon's first answer, quitLimit its end without clients.
	startLimit = 30 * time.Second
	quitLimit  = 2 * time.Second
	// askEvery is the pause between two questions to a daemon that starts or recovers.
	askEvery = 50 * time.Millisecond
)

// Host runs the MPS servers of one worker. Close ends those that it has started.
type Host struct {
	Log *zap.Logger
	// Probe tries a device in a process with this environment. It returns how much memory
	// the process may take there, 0 if the device failed, or why that is not known. Default:
	// none.
	Probe func(ctx context.Context, uuid string, env map[string]string) (free uint64, untried string)

	mu      sync.Mutex // guards what follows
	folder  string
	servers map[string]*server // by pipe directory, or by device where it is the worker's own
}

// server returns the MPS server of a device: the one that is there already, else the
// worker's own. Each device has its own, so that no fault reaches another device.
func (h *Host) server(ctx context.Context, d gpu.Device) (*server, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.servers == nil {
		h.servers = map[string]*server{}
	}
	if pipe := mps.Pipe(); mps.Listens(pipe) {
		return h.foreign(ctx, pipe)
	}
	if s := h.servers[d.UUID]; s != nil {
		return s, nil
	}
	if err := h.makeFolder(); err != nil {
		return nil, err
	}
	at := filepath.Join(h.folder, strconv.Itoa(len(h.servers)))
	life, end := context.WithCancel(context.Background())
	s := &server{host: h, own: true, life: life, end: end, log: h.Log.With(zap.String("device", d.UUID)),
		daemon: mps.Daemon{Pipe: filepath.Join(at, "pipe"), Device: d.UUID}}
	h.servers[d.UUID] = s
	return s, s.start(ctx)
}

// foreign returns the server of a daemon that is there already. The worker never ends it.
func (h *Host) foreign(ctx context.Context, pipe string) (*server, error) {
	if s := h.servers[pipe]; s != nil {
		return s, nil
	}
	life, end := context.WithCancel(context.Background())
	s := &server{host: h, life: life, end: end, log: h.Log.With(zap.String("pipe", pipe)), daemon: mps.Daemon{Pipe: pipe}}
	h.servers[pipe] = s
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	switch _, err := s.daemon.Servers(ctx); {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, mps.ErrNone): // it takes connections, but may answer only its own user
		s.mute = true
		s.log.Warn("the MPS daemon that is there cannot be asked: busy processes are killed without its word, its recovery is not awaited",
			zap.String("why", err.Error()),
			zap.String("advice", "install "+mps.Program+" beside the worker, and run the worker as the daemon's user"))
	case err != nil:
		return nil, fmt.Errorf("sharing: mps: %w", err)
	}
	if s.far = !s.daemon.Near(); s.far {
		s.log.Warn("the MPS daemon that is there runs in another container, so busy processes are killed without its word", zap.String(
			"advice", "give the pods that share it the host's process numbers (hostPID), or one pod the whole GPU with sharing: mps"))
	}
	s.log.Info("slots share devices by the MPS daemon that is there")
	return s, nil
}

// makeFolder makes the daemons' private folder, in /tmp where socket paths get too long.
func (h *Host) makeFolder() (err error) {
	if h.folder != "" {
		return nil
	}
	const name, rest = "gpumux-mps-", "/1234567890/123/pipe"
	within := os.TempDir()
	if len(within)+len(name)+len(rest) > mps.LongestPipe {
		within = "/tmp"
	}
	if h.folder, err = os.MkdirTemp(within, name); err != nil {
		return fmt.Errorf("make a folder for MPS daemons: %w; let TMPDIR name one of at most %d bytes that the worker can write to",
			err, mps.LongestPipe-len(name)-len(rest))
	}
	return process.Sweep(h.Log, h.folder)
}

// Close ends the daemons that were started, and returns when nothing of them is left.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all sync.WaitGroup
	for _, s := range h.servers {
		all.Go(s.stop)
	}
	all.Wait()
	if h.folder == "" {
		return nil
	}
	return os.RemoveAll(h.folder)
}
