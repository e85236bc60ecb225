// Package bench measures what gpumux costs and gains on this machine, beside bare processes that run the same function.
//
// It owns the workloads and their Python file, the bare processes, the ways of running a workload, what is made of the
// figures, and the report as a table, JSON and HTML. It never starts a Temporal server: the caller gives a client of one that
// no other gpumux worker serves. Run returns when everything it started has ended: bare processes, workers, maps, slots.
//
// # What is measured
//
// A workload runs in bare processes, in as many slots of a persistent and of a fresh pool, in one slot, in one bare process,
// and on the CPU where the others use a GPU. A map counts from its submission to its merged results file. The time of one item
// is that from the end of the slot's previous item to its own end, so all that lies between counts; the first item of a slot
// has none. Bare processes have the environment of a slot and are measured before and after the maps, so that a machine that
// grows slower shows in both.
package bench
