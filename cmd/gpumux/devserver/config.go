package devserver

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
)

const clusterName = "active"

// newConfig is one cluster of one host with one history shard and no archive. Metrics and
// profiling have no port, nor has membership: hosts are static. Nor has the HTTP API, for
// any web page could call it.
func newConfig(p ports, bind string, d database) *config.Config {
	c := &config.Config{
		Persistence: config.Persistence{
			DefaultStore:     sqlite.PluginName,
			VisibilityStore:  sqlite.PluginName,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{sqlite.PluginName: {SQL: d.config()}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: address(loopback, p[primitives.FrontendService])},
			},
		},
		Services: map[string]config.Service{},
	}
	for name, port := range p {
		// BindOnLocalHost would ask the environment and the resolver for "localhost".
		rpc := config.RPC{GRPCPort: port, BindOnIP: loopback}
		if name == primitives.FrontendService {
			rpc.BindOnIP = bind
		}
		c.Services[string(name)] = config.Service{RPC: rpc}
	}
	if p[primitives.InternalFrontendService] == 0 {
		c.PublicClient.HostPort = address(loopback, p[primitives.FrontendService])
	}
	return c
}

const (
	// pollsPerSecond replaces 20 per shard: with those a queue waits 50 ms for a poll.
	pollsPerSecond = 500
	// longPoll replaces 20 s. The server drops a waiter's second notification while the
	// first is unread: here in one wait of fifty, which then lasts as long as the poll.
	longPoll = 500 * time.Millisecond
	// timerShift replaces 1 s, by which every timer may be late: clocks of hosts differ.
	timerShift = 20 * time.Millisecond
	// listsPerSecond is beyond what SQLite answers.
	listsPerSecond = 1000
	// openPolls is beyond what any number of workers keeps open here.
	openPolls = 50_000
)

// settings use the server's own keys, so one that a new version drops does not compile.
// Integers must be Go int: the server ignores others.
func settings() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		// Latency: with these a workflow of one activity takes a tenth of the default's time.
		dynamicconfig.TransferProcessorMaxPollRPS.Key():         pollsPerSecond,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():            pollsPerSecond,
		dynamicconfig.OutboundProcessorMaxPollRPS.Key():         pollsPerSecond,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key():       pollsPerSecond,
		dynamicconfig.HistoryLongPollExpirationInterval.Key():   longPoll,
		dynamicconfig.TimerProcessorMaxTimeShift.Key():          timerShift,
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,

		// Order: priority and fairness are exact with one partition.
		dynamicconfig.MatchingUseNewMatcher.Key():  true,
		dynamicconfig.MatchingEnableFairness.Key(): true,

		// Workers: cancellation needs no heartbeat, polls end with their worker.
		dynamicconfig.WorkerCommandsEnabled.Key():             true,
		dynamicconfig.EnableCancelActivityWorkerCommand.Key(): true,
		dynamicconfig.EnableCancelWorkerPollsOnShutdown.Key(): true,
		dynamicconfig.WorkerHeartbeatsEnabled.Key():           true,

		// Many workers: the default refuses more than 1,200 polls of a namespace.
		dynamicconfig.FrontendMaxConcurrentLongRunningRequestsPerInstance.Key(): openPolls,

		// Updates: pause, resume and window of a long map (defaults: 10 in flight, 2000).
		dynamicconfig.WorkflowExecutionMaxInFlightUpdates.Key(): 100,
		dynamicconfig.WorkflowExecutionMaxTotalUpdates.Key():    20_000,

		// Lists: the default, 10 a second, refuses a few people who look at once.
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(): listsPerSecond,

		// No call to another host.
		dynamicconfig.EnableServerVersionCheck.Key(): false,
	}
}

const loopback = "127.0.0.1"

// ports has the port of each service, for gRPC; callers use only the frontend's. A server
// with a token has an inner frontend for the other services.
type ports map[primitives.ServiceName]int

func (p ports) hosts() map[primitives.ServiceName]static.Hosts {
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, port := range p {
		hosts[name] = static.SingleLocalHost(address(loopback, port))
	}
	return hosts
}

// names lists the services that run. A brief server does without the worker service,
// though others want to know its port.
func (p ports) names(brief bool) (names []string) {
	for name := range p {
		if !brief || name != primitives.WorkerService {
			names = append(names, string(name))
		}
	}
	return names
}

func choosePorts(frontend int, private bool) (p ports, err error) {
	p = ports{primitives.FrontendService: frontend, primitives.HistoryService: 0, primitives.MatchingService: 0, primitives.WorkerService: 0}
	if private {
		p[primitives.InternalFrontendService] = 0
	}
	for name, port := range p {
		if port == 0 && err == nil {
			p[name], err = freePort()
		}
	}
	return p, err
}

func freePort() (port int, err error) {
	listener, err := net.Listen("tcp4", address(loopback, 0))
	if err != nil {
		return 0, fmt.Errorf("find a free port on %s: %w", loopback, err)
	}
	return portOf(listener), listener.Close()
}

// listen opens a port; instead says what to do where it is taken.
func listen(host string, port int, instead string) (net.Listener, error) {
	listener, err := net.Listen("tcp4", address(host, port))
	if isPortTaken(err) {
		return nil, fmt.Errorf("port %d on %s is in use: stop the program that listens there, or %s: %w", port, host, instead, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on port %d of %s: %w; give a port that you may use, at an address of this host", port, host, err)
	}
	return listener, nil
}

func checkPort(host string, port int) error {
	if port == 0 && host == loopback {
		return nil
	}
	listener, err := listen(host, port, otherPort)
	if err != nil {
		return err
	}
	return listener.Close()
}

const otherPort, otherUIPort = "give another port for the server", "give another port for the Web UI"

func isPortTaken(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
