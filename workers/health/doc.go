// Package health decides which devices may take work.
//
// It owns the probe, a throw-away process that tries a device, and the cordons of a worker's pools: a device that failed gets no new
// calls until the driver and a probe say that it works. It never ends a call and resets nothing. A Guard stops with the context of
// Run, a Probe within the prober's limit.
package health
