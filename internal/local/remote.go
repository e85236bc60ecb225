package local

import (
	"cmp"
	"encoding/json"
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/workers/config"
)

// connectionFile and workerFile are what other hosts need of a data folder.
const connectionFile, workerFile = "temporal.toml", "worker.json"

// writeFiles writes the connection file and, for a map, the file of a worker like this
// session's.
func (s *Session) writeFiles(conf config.Config) error {
	st, err := s.UseStore(s.ctx)
	if err != nil {
		return err
	}
	id, err := st.Identity(s.ctx)
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(s.Server.Address())
	s.Address, s.File = net.JoinHostPort(s.o.Host, port), filepath.Join(s.Data, connectionFile)
	file := fleet.File{Address: s.Address, Token: s.Server.Token(), Authority: s.Server.Authority(), Store: s.Store, StoreID: id}
	if err := file.Write(s.File); err != nil || s.o.Task == nil {
		return err
	}
	conf.Store, conf.Temporal.Connect = "", connectionFile // which has the store's identity too
	text, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return err
	}
	s.WorkerFile = filepath.Join(s.Data, workerFile)
	return renameio.WriteFile(s.WorkerFile, text, 0o600)
}

// stopLimit is how long the command that starts workers may take to end by itself, and
// again when it is told to.
const stopLimit, stopCheck = 10 * time.Second, 50 * time.Millisecond

// startWorkers runs the command that starts workers on other hosts, until it or the
// session ends. Its standard input ends with this process, whatever ends that.
func (s *Session) startWorkers() {
	cmd := exec.CommandContext(s.ctx, "sh", "-c", s.o.Workers(s.WorkerFile))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() (err error) {
		// The workers of a map that is over end by themselves, and with them the command.
		for until := time.Now().Add(stopLimit); err == nil && s.over.Load() && time.Now().Before(until); time.Sleep(stopCheck) {
			err = cmd.Process.Signal(syscall.Signal(0))
		}
		return cmp.Or(err, syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM))
	}
	cmd.WaitDelay = stopLimit
	cmd.Stdout, cmd.Stderr = s.o.Output, s.o.Output
	_, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Run()
	}
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	ended := cmp.Or(err, errors.New("exit status 0"))
	switch {
	case s.ctx.Err() != nil || s.over.Load():
	case s.worker == nil:
		s.end(unavailable("the command of --workers ended, and with it the map's workers: %w", ended))
	default:
		s.say("the command of --workers ended: %v; the map goes on", ended)
	}
}
