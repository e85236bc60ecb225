// Package health decides which devices may take work.
//
// It owns the cordons of a worker's pools: a device that failed gets no new calls until the driver says that it works again. It
// never ends a call, resets nothing, and asks the driver only what costs nothing. A Guard stops with the context of Run.
package health
