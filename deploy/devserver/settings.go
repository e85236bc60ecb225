package devserver

import (
	"time"

	"go.temporal.io/server/common/dynamicconfig"
)

const (
	// pollsPerSecond replaces the server's default of 20 per shard, which makes a queue wait up to 50 ms for its next poll.
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
