package devserver

import (
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
)

const clusterName = "active"

// newConfig is the server's static configuration: one cluster of one host with one history shard. Metrics and profiling have
// no port: they are off, and so is the HTTP API, which any web page could call. Services find one another through static hosts, so
// the membership protocol has no port either.
func newConfig(p ports, d database) *config.Config {
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
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: address(p.frontend)},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services: map[string]config.Service{
			string(primitives.FrontendService): service(p.frontend),
			string(primitives.HistoryService):  service(p.history),
			string(primitives.MatchingService): service(p.matching),
			string(primitives.WorkerService):   service(p.worker),
		},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: config.ArchivalDisabled},
			Visibility: config.VisibilityArchival{State: config.ArchivalDisabled},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: config.ArchivalDisabled},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: config.ArchivalDisabled},
		}},
	}
	if p.inner > 0 {
		c.Services[string(primitives.InternalFrontendService)] = service(p.inner)
	} else {
		c.PublicClient.HostPort = address(p.frontend)
	}
	return c
}

// BindOnLocalHost would ask the environment and the resolver for "localhost".
func service(grpc int) config.Service {
	return config.Service{RPC: config.RPC{GRPCPort: grpc, BindOnIP: loopback}}
}

const (
	// pollsPerSecond replaces 20 per shard, with which a queue waits 50 ms for a poll.
	pollsPerSecond = 500
	// longPoll replaces the server's default of 20 s. The server drops a waiter's second notification while the first is unread. With
	// queues this fast that happens in one wait of fifty, which then lasts until the long poll ends.
	longPoll = 500 * time.Millisecond
	// timerShift replaces the server's default of 1 s, by which every timer may be late, also that of a chunk's retry. It allows for clocks
	// that differ between hosts; here is only one.
	timerShift = 20 * time.Millisecond
	// listsPerSecond is beyond what SQLite answers.
	listsPerSecond = 1000
)

// settings is the server's dynamic configuration. The keys come from the server's own settings, so one that a new version drops does
// not compile. Integers must be Go int: the server ignores others.
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

		// Workers: cancellation that does not wait for a heartbeat, polls that end with their worker, and their state in the UI.
		dynamicconfig.WorkerCommandsEnabled.Key():             true,
		dynamicconfig.EnableCancelActivityWorkerCommand.Key(): true,
		dynamicconfig.EnableCancelWorkerPollsOnShutdown.Key(): true,
		dynamicconfig.WorkerHeartbeatsEnabled.Key():           true,

		// Updates: pause, resume and window changes of a long map (defaults: 10 in flight, 2000 in all).
		dynamicconfig.WorkflowExecutionMaxInFlightUpdates.Key(): 100,
		dynamicconfig.WorkflowExecutionMaxTotalUpdates.Key():    20_000,

		// Lists: the default of 10 a second in a namespace refuses a few people who look at once.
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(): listsPerSecond,

		// A search attribute can be used as soon as it is added.
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): true,

		// No call to another host.
		dynamicconfig.EnableServerVersionCheck.Key(): false,
	}
}
