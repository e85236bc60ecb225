package sharing

import (
	"context"
	"fmt"
	"os"
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
	// startLimit bounds a daemon's start, quitLimit its end without clients.
	startLimit = 30 * time.Second
	quitLimit  = 2 * time.Second
	askEvery   = 50 * time.Millisecond
)

// Host runs the MPS servers of one worker. Close ends those that it has started.
type Host struct {
	Log *zap.Logger

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
		if h.servers[pipe] == nil {
			h.servers[pipe] = &server{log: h.Log.With(zap.String("pipe", pipe)), daemon: mps.Daemon{Pipe: pipe}}
			h.Log.Info("slots share devices by the MPS daemon that is there, which the worker never ends", zap.String("pipe", pipe))
		}
		return h.servers[pipe], nil
	}
	if s := h.servers[d.UUID]; s != nil {
		return s, nil
	}
	if err := h.makeFolder(); err != nil {
		return nil, err
	}
	at := filepath.Join(h.folder, strconv.Itoa(len(h.servers)))
	s := &server{ours: true, log: h.Log.With(zap.String("device", d.UUID)), daemon: mps.Daemon{Pipe: filepath.Join(at, "pipe"), Device: d.UUID}}
	h.servers[d.UUID] = s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.start(ctx)
}

func (h *Host) makeFolder() (err error) {
	if h.folder != "" {
		return nil
	}
	if h.folder, err = os.MkdirTemp("", "gpumux-mps-"); err != nil {
		return fmt.Errorf("make a folder for MPS daemons: %w", err)
	}
	return process.Sweep(h.folder)
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
