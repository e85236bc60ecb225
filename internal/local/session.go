package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

// Session is a server and perhaps a worker in this process, with a data folder.
type Session struct {
	*starter.Starter
	Server Server
	// Data is the folder, as an absolute path.
	Data string
	// File is the connection file for others, who find the server at Address. WorkerFile is
	// the file for workers of other hosts.
	File, Address, WorkerFile string

	o      Options
	worker *workers.Worker
	// ctx ends with Close, or when the worker can serve no more.
	ctx      context.Context
	end      context.CancelCauseFunc
	watching sync.WaitGroup
	// hold is the lock that keeps other processes out of the folder.
	hold *os.File
	// handle is the session's map, or nil, and note what its folder says of it.
	handle *starter.Handle
	note   State
	// Keeps says that a stage of its map keeps values in the folder.
	Keeps bool
	// useless lets Close delete the folder.
	useless bool
	// over says that the map has ended, and so do workers of other hosts.
	over atomic.Bool
}

// Open starts a server and, for a Task or Modules, a worker.
func Open(ctx context.Context, o Options) (_ *Session, err error) {
	defer func() {
		if err != nil {
			o.closeInventory()
		}
	}()
	if err := o.fill(ctx, ""); err != nil {
		return nil, err
	}
	temporary := o.Data == ""
	if temporary {
		if o.Data, err = os.MkdirTemp("", "gpumux-local-"); err != nil {
			return nil, unavailable("%w", err)
		}
	}
	s, err := open(ctx, o, nil)
	if err != nil {
		if temporary {
			_ = os.RemoveAll(o.Data)
		}
		return nil, err
	}
	s.useless = temporary
	return s, nil
}

func (o *Options) fill(ctx context.Context, mode gpumux.Mode) (err error) {
	if o.Say == nil {
		o.Say = func(string) {}
	}
	switch {
	case o.Task == nil && o.Modules == nil, o.NoWorker, o.Inventory != nil:
	case o.Pools == nil:
		_, err = o.Place(ctx, nil, config.Pool{Mode: mode})
	default:
		o.Inventory, err = gpu.Open(ctx, gpu.Options{})
	}
	return err
}

func (o *Options) closeInventory() {
	if o.Inventory != nil {
		_ = o.Inventory.Close()
		o.Inventory = nil
	}
}

// open checks the set-up and starts the server and the worker, for one map if there is an
// m. A failure stops what was started.
func open(ctx context.Context, o Options, m *starter.Map) (_ *Session, err error) {
	if o.Data, err = filepath.Abs(o.Data); err != nil {
		return nil, unavailable("%w", err)
	}
	s := &Session{o: o, Data: o.Data}
	conf, err := o.configure(ctx)
	if err != nil {
		return nil, err
	}
	s.ctx, s.end = context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			s.Close(context.WithoutCancel(ctx))
		}
	}()
	var holders []string
	if s.hold, holders, err = holdFolder(ctx, s.Data, m != nil); err != nil {
		return nil, err
	}
	if err := s.connect(conf); err != nil {
		return nil, err
	}
	if m != nil {
		// A map that does not suit must not get a worker, which would fail and end it.
		if last, err := s.Open(s.ctx, m.ID); err == nil {
			if err := cmp.Or(last.EndChanged(s.ctx, *m), last.CheckEdition(*m)); err != nil {
				return nil, err
			}
		}
	}
	s.takeOver(holders)
	return s, s.serve()
}

// takeOver hands on what the folder's last processes ran when they died, which the server
// would wait for.
func (s *Session) takeOver(holders []string) {
	ctx, cancel := context.WithTimeout(s.ctx, takeOverLimit)
	defer cancel()
	for _, holder := range holders {
		var process int
		var host string
		if _, err := fmt.Sscanf(holder, holderFormat, &process, &host); err != nil {
			continue // there was none
		}
		if err := (&fleet.Fleet{Client: s.Client}).Release(ctx, contract.Identity(host, process)); err != nil {
			s.say("hand on what %s ran when it died: %v; the server does so when it has heard nothing of it for a while", holder, err)
			return
		}
	}
	_ = writeHolder(s.hold, 0) // else the next start asks for them again
}

const takeOverLimit = 10 * time.Second

// configure makes the configuration of the worker, or of workers elsewhere. It has no
// tasks where there are none.
func (o *Options) configure(ctx context.Context) (config.Config, error) {
	conf := config.Config{Store: cmp.Or(o.Store, storeIn(o.Data)), Pools: o.Pools}
	switch {
	case o.Task != nil:
		conf.Tasks, conf.Dir = o.Task.tasks(), o.Task.dir
	case o.Modules != nil:
		conf.Tasks, conf.Dir = map[string]config.Task{"*": *o.Modules}, o.Modules.PythonDir
	}
	if conf.Tasks == nil {
		return conf, nil
	}
	if !o.NoWorker { // others see for themselves
		if err := conf.Validate(o.Inventory); err != nil {
			return conf, err
		}
	}
	return conf, startable(ctx, conf.Tasks)
}

// connect starts the server, opens the store and makes the worker, if there are tasks.
func (s *Session) connect(conf config.Config) error {
	options := s.o.ServerOptions
	options.Data = s.Data
	if !s.o.Public && s.o.Host == "" {
		options.Token = rand.Text()
	}
	server, err := s.o.Server(s.ctx, options)
	if err != nil {
		return &UnavailableError{err}
	}
	s.Server = server
	s.Starter = &starter.Starter{Store: conf.Store, Namespace: client.DefaultNamespace}
	if err := s.OpenStore(s.ctx); err != nil {
		return &UnavailableError{err}
	}
	to := fleet.Options{Address: server.Address(), Namespace: client.DefaultNamespace, Plain: true, Token: server.Token(), Timeout: 15 * time.Second}
	if s.o.Host != "" {
		if err := s.writeFiles(conf); err != nil {
			return unavailable("write what other hosts need: %w; give another folder", err)
		}
		to.File, to.Plain = s.File, false
	} else {
		_ = os.Remove(filepath.Join(s.Data, connectionFile)) // of another start
	}
	s.Client, err = fleet.Dial(s.ctx, to)
	if err != nil || conf.Tasks == nil || s.o.NoWorker {
		return err
	}
	s.worker, err = workers.New(conf, workers.Options{Client: s.Client, Dedicated: true, Inventory: s.o.Inventory, Version: s.o.Version,
		Log: s.o.Log, Notice: s.o.Say, StopTimeout: cmp.Or(s.o.StopTimeout, time.Second)})
	return err
}

// serve starts the worker, if there is one, and watches it and the disk.
func (s *Session) serve() error {
	if s.worker == nil {
		return nil
	}
	if err := s.worker.Start(s.ctx); err != nil {
		if interrupted := context.Cause(s.ctx); interrupted != nil {
			return interrupted
		}
		return unavailable("start the worker: %w", err)
	}
	s.watching.Go(s.tellRoom)
	s.watching.Go(func() {
		select {
		case err := <-s.worker.Failed():
			s.end(unavailable("the worker stopped: %w", err))
		case <-s.ctx.Done():
		}
	})
	return nil
}

// Context ends with Open's or Map's, with Close, or when the worker fails.
func (s *Session) Context() context.Context { return s.ctx }

// Describe says what the worker offers; there must be one.
func (s *Session) Describe() contract.WorkerInfo { return s.worker.Describe() }

// Close stops worker and server, and lets go of the folder. When ctx ends it leaves them
// to die with the process, which loses nothing that is stored.
func (s *Session) Close(ctx context.Context) {
	s.end(nil)
	if s.worker != nil {
		if err := s.worker.Stop(ctx); err != nil && ctx.Err() == nil {
			s.say("stop the worker: %v", err)
		}
	}
	s.watching.Wait()
	s.o.closeInventory()
	if s.Starter != nil {
		if s.Client != nil {
			s.Client.Close()
		}
		s.Starter.Close()
	}
	stays := ctx.Err() != nil || s.o.Brief // and ends with this process
	if s.Server != nil && !stays {
		if err := s.Server.Stop(); err != nil {
			s.say("stop the server: %v", err)
		}
	}
	if s.useless {
		if err := removeFolder(s.Data, s.hold); err != nil {
			s.say("delete %s: %v", s.Data, err)
		}
	} else if s.note.Made {
		if err := tidy(time.Now()); err != nil {
			s.say("delete the state of old maps: %v", err)
		}
	}
	if !stays {
		_ = s.hold.Close() // nil where another process has the folder
	}
}

func (s *Session) say(format string, args ...any) { s.o.Say(fmt.Sprintf(format, args...)) }

const (
	// roomEvery is how often the disk is looked at, minRoom its least free bytes.
	roomEvery = 2 * time.Second
	minRoom   = 1 << 20
)

// tellRoom says when the disk of a session's state fills up, since server and store then
// wait without a word, and when there is room again. It ends with the session's context.
func (s *Session) tellRoom() {
	full := false
	for s.ctx.Err() == nil {
		var disk unix.Statfs_t
		if err := unix.Statfs(s.Data, &disk); err == nil {
			free := int64(disk.Bavail) * int64(disk.Bsize)
			switch {
			case free < minRoom && !full:
				full = true
				s.say("the disk of %s is full (%s left): the map waits until there is room", s.Data, gpumux.Size(free))
			case free >= minRoom && full:
				full = false
				s.say("there is room on the disk of %s again", s.Data)
			}
		}
		select {
		case <-time.After(roomEvery):
		case <-s.ctx.Done():
		}
	}
}
