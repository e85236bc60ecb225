// Package devserver runs a whole Temporal in this process, with SQLite and the Web UI.
//
// It owns the listening ports, the database in the data folder, and the settings that
// make one machine fast. Its caller keeps other servers out of the folder. It never
// listens beyond loopback without being told to, calls another host or prints. It stops
// with Stop. A killed server finds its state again. It is for one machine or a group of
// them; a fleet has a Temporal cluster of its own.
package devserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/gpumux/gpumux/internal/names"
)

const (
	namespace    = "default"
	retention    = 30 * 24 * time.Hour // of closed workflows
	bindAttempts = 3
)

// Options say what to start. Those of package local convert to them.
type Options struct {
	Data         string // folder for the database, created when missing; one server in the life of a process; default "": in memory, gone at Stop
	Port, UIPort int    // of the frontend (gRPC) and of the Web UI (HTTP); default 0: free ones
	// Bind is the IPv4 address of the frontend for those who have Server.Token and
	// Server.Authority, which stay with Data; default "": 127.0.0.1, and Token holds.
	Bind     string
	Headless bool // no Web UI; default false
	Brief    bool // for one command: no schedules, batches or clean-up of months, so it starts faster; default false
	// Token is required of callers as "authorization: Bearer <Token>", and its key of
	// browsers; default "": everybody on this machine may call.
	Token string
	Log   *zap.Logger // receives the server's warnings and errors; default: nothing is logged
}

// Server is a running Temporal. Its methods may be called by any goroutine.
type Server struct {
	ports    ports
	bind     string
	token    token
	identity identity // the zero value without Options.Bind
	ui       *webUI   // nil when headless
	temporal temporal.Server
	database database
	log      quietLog
	stop     func() error // shutDown, once
}

// Start returns when a server answers calls for the namespace; ctx bounds that alone. A
// port in use, or a folder that cannot be used, is found before anything starts.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{bind: cmp.Or(o.Bind, loopback), token: token(o.Token), log: newQuietLog(o.Log)}
	s.stop = sync.OnceValue(s.shutDown)
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start Temporal: %w", err), s.Stop())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, o Options) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkPort(s.bind, o.Port); err != nil {
		return err
	}
	if o.Bind != "" {
		var err error
		if s.identity, err = loadIdentity(o.Data); err != nil {
			return err
		}
		s.token = s.identity.token
	}
	if !o.Headless {
		listener, err := listen(loopback, o.UIPort, otherUIPort)
		if err != nil {
			return err
		}
		s.ui = &webUI{listener: listener, token: s.token}
	}
	s.database = memoryDatabase()
	if o.Data != "" {
		var err error
		if s.database, err = openFile(ctx, o.Data); err != nil {
			return err
		}
	}
	if err := s.database.createNamespace(); err != nil {
		return err
	}
	if err := s.build(o); err != nil {
		return err
	}
	if err := s.temporal.Start(); err != nil {
		return err
	}
	if err := s.waitReady(ctx); err != nil {
		return err
	}
	if s.ui == nil {
		return nil
	}
	return s.ui.serve(s.Address(), s.identity.authority, s.log.zap)
}

// build makes the server, which binds its ports, and chooses others where one is lost.
func (s *Server) build(o Options) error {
	for attempt := 1; ; attempt++ {
		var err error
		if s.ports, err = choosePorts(o.Port, s.token != ""); err != nil {
			return err
		}
		s.temporal, err = s.newTemporal(o.Brief)
		if err == nil || attempt == bindAttempts || !isPortTaken(err) {
			return err
		}
		if err := checkPort(s.bind, o.Port); err != nil {
			return err
		}
	}
}

// newTemporal turns the server's fatal log lines into errors.
func (s *Server) newTemporal(brief bool) (server temporal.Server, err error) {
	defer func() {
		if r := recover(); r != nil {
			fatal, ok := r.(fatalError)
			if !ok {
				panic(r)
			}
			server, err = nil, fatal.error
		}
	}()
	options := []temporal.ServerOption{
		temporal.ForServices(s.ports.names(brief)),
		temporal.WithConfig(newConfig(s.ports, s.bind, s.database)),
		temporal.WithStaticHosts(s.ports.hosts()),
		temporal.WithDynamicConfigClient(settings()),
		temporal.WithLogger(s.log),
		temporal.WithAuthorizer(s.token),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return s.token }),
	}
	if s.token != "" {
		services, err := newServiceTLS(s.identity)
		if err != nil {
			return nil, err
		}
		options = append(options, temporal.WithTLSConfigFactory(services))
	}
	return temporal.NewServer(options...)
}

// Address is the frontend's host:port on this machine, for client.Options.HostPort.
func (s *Server) Address() string {
	host := s.bind
	if net.ParseIP(host).IsUnspecified() {
		host = loopback
	}
	return address(host, s.ports[primitives.FrontendService])
}

// UI is the Web UI's URL without a trailing slash, with ?key= where any page has to be
// shown it once; "" when headless.
func (s *Server) UI() string {
	if s.ui == nil {
		return ""
	}
	return s.ui.url() + s.token.query()
}

// Token is required of callers; "" where none is.
func (s *Server) Token() string { return string(s.token) }

// Authority is the certificate, in PEM, of who has signed the server's, with Bind.
func (s *Server) Authority() []byte { return s.identity.authority }

// Stop ends the server in a second or two. It returns when the ports are closed. Further
// calls return the same.
func (s *Server) Stop() error { return s.stop() }

func (s *Server) shutDown() error {
	var errs []error
	if s.ui != nil {
		errs = append(errs, s.ui.close())
	}
	if s.temporal != nil {
		// The services log errors when others leave; nothing is wrong.
		s.log.silent.Store(true)
		errs = append(errs, s.temporal.Stop())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop Temporal: %w", err)
	}
	return nil
}

const (
	readyTimeout  = 30 * time.Second
	readyInterval = 5 * time.Millisecond
)

// waitReady returns when the frontend answers for the namespace.
func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("no answer within %s", readyTimeout))
	defer cancel()
	if s.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", s.token.header())
	}
	transport := insecure.NewCredentials()
	if s.identity.token != "" {
		transport = credentials.NewTLS(&tls.Config{RootCAs: s.identity.pool(), ServerName: names.Server, MinVersion: tls.VersionTLS13})
	}
	address := s.Address()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(transport))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	defer conn.Close()
	client := workflowservice.NewWorkflowServiceClient(conn)
	request := &workflowservice.DescribeNamespaceRequest{Namespace: namespace}
	for {
		_, err := client.DescribeNamespace(ctx, request, grpc.WaitForReady(true))
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for namespace %s at %s: %w (last answer: %w)", namespace, address, context.Cause(ctx), err)
		case <-time.After(readyInterval):
		}
	}
}
