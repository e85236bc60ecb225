// Package memory decides what a task process may hold, who enforces it, and whether that is proven. An Enforcer serves one worker: it
// reads what processes hold and ends those over their budget, has the kernel limit them where it can, and sets the frameworks' own caps.
//
// It never shares devices out between slots, and never decides what is done about a process that it has ended: the slot does. Its
// readings stop when the context of Run ends.
package memory
