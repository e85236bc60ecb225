// Package memory owns the memory budgets of one worker's task processes: an Enforcer measures the processes, ends those over their
// budget, has the kernel limit them where it can, sets the frameworks' own caps, and proves what it relies on. It never divides devices
// among slots, and never decides what follows the end of a process: the slot does. It stops when the context of Run ends.
package memory
