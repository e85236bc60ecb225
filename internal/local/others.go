package local

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// dismissLimit is how long the command that starts workers may take to end them, by
// itself and when it is told to.
const dismissLimit, dismissCheck = 5 * time.Second, 50 * time.Millisecond

// recruit runs the command that starts workers on other hosts, until it or the session
// ends. Its standard input ends with this process, whatever ends that.
func (s *Session) recruit() {
	cmd := exec.CommandContext(s.ctx, "sh", "-c", strings.ReplaceAll(s.o.Workers, "{}", `"$1"`), "sh", s.WorkerFile)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		// Where the map is over, the workers end by themselves, and the command with them.
		for until := time.Now().Add(dismissLimit); s.over && time.Now().Before(until); time.Sleep(dismissCheck) {
			if syscall.Kill(cmd.Process.Pid, 0) != nil {
				return os.ErrProcessDone
			}
		}
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	}
	cmd.WaitDelay = dismissLimit
	cmd.Stdout, cmd.Stderr = s.o.Output, s.o.Output
	_, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Run()
	}
	switch {
	case err == nil || s.ctx.Err() != nil:
	case s.worker == nil:
		s.end(unavailable("the command of --workers ended, and with it the map's workers: %w", err))
	default:
		s.say("the command of --workers ended: %v; the map goes on", err)
	}
}
