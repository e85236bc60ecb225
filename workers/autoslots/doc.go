// Package autoslots finds by measurement how many slots per device get the most work done, for pools with slots: auto. A Sizing is told of
// every call and every result; it resizes its pool.
//
// It never starts or ends a process itself, and never gives a pool more slots than the devices have memory for. It stops when the context
// of Run ends.
package autoslots
