package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/store"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

// session is a server and a worker in this process, with a data folder that outlives them.
type session struct {
	connection
	app    *app
	data   string
	server Server
	// token is what the server asks for, or empty.
	token  string
	worker *workers.Worker
	// hold keeps other commands out of the folder, for a session with an owner; fresh says that the folder was not there before.
	hold  *hold
	fresh bool
}

// sessionOptions say what to run. Zero ports mean any free one.
type sessionOptions struct {
	data string
	// owner is the map that the folder is for, if it is for one.
	owner        string
	port, uiPort int
	headless     bool
	// open lets everybody on this machine in, where a session otherwise has a token; uiHosts are further names of the Web UI.
	open    bool
	uiHosts []string
	// pools and tasks are the worker's; no pools means no worker.
	pools []config.Pool
	tasks map[string]config.Task
	dir   string
	// calm keeps the worker's warnings about single items off the screen, since the results have them.
	calm bool
	// stopTimeout is how long running chunks may go on at the end.
	stopTimeout time.Duration
}

// open checks the worker's set-up, starts the server, then the worker. What it started is stopped again when it fails.
func (a *app) open(ctx context.Context, o sessionOptions) (_ *session, err error) {
	data, err := filepath.Abs(o.data)
	if err != nil {
		return nil, unavailableError{err}
	}
	s := &session{app: a, data: data}
	storeURL := storeIn(data)
	keys, err := a.sealing()
	if err != nil {
		return nil, err
	}
	conf := config.Config{Store: storeURL, Pools: o.pools, Tasks: o.tasks, Dir: o.dir}
	if a.keysPath != "" {
		if conf.Codec.Keys, err = filepath.Abs(a.keysPath); err != nil {
			return nil, unavailableError{err}
		}
	}
	if len(o.pools) > 0 {
		if err := checkWorker(conf); err != nil {
			return nil, inFlags(err)
		}
		if err := startable(ctx, o.tasks); err != nil {
			return nil, err
		}
	}
	log := a.log()
	if o.calm && !a.verbose {
		log = log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	}
	if _, err := os.Lstat(data); errors.Is(err, fs.ErrNotExist) {
		s.fresh = true
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, unavailableError{fmt.Errorf("make the data folder: %w; give another with --data", err)}
	}
	// The folder may be the user's own and open; what lies in it is not.
	if err := privateFolder(filepath.Join(data, "store")); err != nil {
		return nil, unavailableError{err}
	}
	defer func() {
		if err != nil {
			s.close()
			s.hold.release()
		}
	}()
	if o.owner != "" {
		if s.hold, err = holdFolder(data, o.owner); err != nil {
			return nil, unavailableError{err}
		}
	}
	if os.Getenv("GOGC") == "" {
		// A server, a worker and a client share this process: a few percent of its time for a third less memory.
		debug.SetGCPercent(50)
	}
	if !o.open {
		s.token = rand.Text()
	}
	server, err := a.Local.Start(ctx, LocalOptions{
		Data: data, Port: cmp.Or(o.port, AnyPort), UIPort: cmp.Or(o.uiPort, AnyPort), Headless: o.headless,
		Token: s.token, UIHosts: o.uiHosts, Log: log,
	})
	if err != nil {
		return nil, unavailableError{err}
	}
	s.server = server
	if s.store, err = store.Open(ctx, storeURL, keys.objects); err != nil {
		return nil, unavailableError{err}
	}
	c, err := starter.Connect(ctx, starter.ConnectOptions{
		Address: s.server.Address(), Namespace: client.DefaultNamespace, Plain: true, Token: s.token, Timeout: 15 * time.Second, Codec: keys.payloads})
	if err != nil {
		return nil, err
	}
	s.connection.Starter = &starter.Starter{Client: c, Store: s.store, Converter: codec.Converter(nil, keys.payloads)}
	s.address, s.namespace, s.ui = s.server.Address(), client.DefaultNamespace, s.server.UI()
	s.key = s.server.Key()
	if len(o.pools) == 0 {
		return s, nil
	}
	if s.worker, err = workers.New(conf, workers.Options{
		Client: c, Version: a.Version, StopTimeout: o.stopTimeout, Log: log,
	}); err != nil {
		return nil, err
	}
	return s, nil
}

// storeIn is the URL of the store in a data folder.
func storeIn(data string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(data, "store"))}).String()
}

// serve starts the worker. The context ends when the worker can serve no more, with the reason as its cause.
func (s *session) serve(ctx context.Context) (context.Context, error) {
	if _, err := s.HandOn(ctx, dead); err != nil && ctx.Err() == nil {
		// Without it the chunks of a killed worker only come later.
		s.app.console.say("%v", err)
	}
	if err := s.worker.Start(ctx); err != nil {
		if interrupted := context.Cause(ctx); interrupted != nil {
			return nil, interrupted
		}
		return nil, unavailableError{fmt.Errorf("start the worker: %w", err)}
	}
	go s.app.tellRoom(ctx, s.data)
	serving, fail := context.WithCancelCause(ctx)
	go func() {
		select {
		case err := <-s.worker.Failed():
			fail(unavailableError{fmt.Errorf("the worker stopped: %w", err)})
		case <-ctx.Done():
		}
	}()
	return serving, nil
}

// privateFolder makes a folder that only its owner enters.
func privateFolder(path string) error {
	err := os.MkdirAll(path, 0o700)
	if err == nil {
		err = os.Chmod(path, 0o700)
	}
	if err != nil {
		return fmt.Errorf("make a folder that others cannot enter: %w; give another with --data", err)
	}
	return nil
}

// checkWorker finds mistakes in tasks and pools before a server is started for them.
func checkWorker(conf config.Config) error {
	inventory, err := gpu.Open(gpu.Options{})
	if err != nil {
		return unavailableError{fmt.Errorf("list this machine's devices: %w", err)}
	}
	return errors.Join(conf.Validate(inventory), inventory.Close())
}

// startable tries the interpreters that --python gave.
func startable(ctx context.Context, tasks map[string]config.Task) error {
	tried := map[string]bool{"": true}
	for _, task := range tasks {
		python := task.Interpreter
		if tried[python] {
			continue
		}
		tried[python] = true
		if f := checkPython(ctx, python); f.Verdict != good {
			return usage("--python %s: %s; %s", python, cmp.Or(f.Detail, "it said nothing when asked for its version"), f.Fix)
		}
	}
	return nil
}

// inFlags says the mistakes of a configuration that flags made in terms of the flags.
func inFlags(err error) error {
	var found *config.Error
	if !errors.As(err, &found) || found.File != "" {
		return err
	}
	var m mistakes
	for _, p := range found.Problems {
		flag := "TASK"
		switch field := p.Field; {
		case strings.HasSuffix(field, ".memory"):
			flag = "--memory"
		case strings.HasSuffix(field, ".slots"):
			flag = "--slots"
		case strings.HasPrefix(field, "pools"):
			flag = "--pool"
		case strings.HasSuffix(field, ".interpreter"):
			flag = "--python"
		case strings.Contains(field, ".pass_env"):
			flag = "--pass-env"
		case strings.HasSuffix(field, ".python_dir"):
			flag = "--tasks"
		case strings.HasSuffix(field, ".command"):
			flag = "the command"
		}
		m.add("%s: %s", flag, p.Message)
	}
	return m.err()
}

// close stops worker and server; after a second signal it leaves them to die with the process, which loses nothing that is
// stored.
func (s *session) close() {
	if s.worker != nil {
		if err := s.worker.Stop(s.app.hard); err != nil && s.app.hard.Err() == nil {
			s.app.console.say("stop the worker: %v", err)
		}
	}
	if s.connection.Starter != nil {
		s.Client.Close()
	}
	if s.store != nil {
		_ = s.store.Close()
	}
	if s.server != nil && s.app.hard.Err() == nil {
		if err := s.server.Stop(); err != nil {
			s.app.console.say("stop the server: %v", err)
		}
	}
}

// removedSuffix is what the name of a folder that is being deleted ends with.
const removedSuffix = "~"

// remove deletes the data folder, when its map needs nothing of it any more. A folder that is only partly deleted has another
// name by then, which no map's ID has.
func (s *session) remove() {
	if err := removeFolder(s.data); err != nil {
		s.app.console.say("delete %s: %v", s.data, err)
	}
}

func removeFolder(data string) error {
	gone := data + removedSuffix
	err := os.RemoveAll(gone)
	if err == nil {
		err = os.Rename(data, gone)
	}
	if err == nil {
		err = os.RemoveAll(gone)
	}
	return err
}

// log is the log of server and workers in this process: warnings for people, all with --verbose.
func (a *app) log() *zap.Logger { return newLog(a.console, a.verbose) }

// stateFolder is where local state lies by default.
func stateFolder(parts ...string) (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", usage("there is no folder for the state of local maps: %v; set HOME or XDG_STATE_HOME", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(append([]string{state, "gpumux"}, parts...)...), nil
}
