// Package autoslots owns the number of slots per device of pools with slots: auto. A Sizing measures every call and result and resizes its
// pool to the most throughput. It never starts or ends a process, and never gives a pool more slots than the devices have memory for. It
// stops when the context of Run ends.
package autoslots
