// Package slot is the seat on a device: it runs the items of one call at a time in a task process of its own.
//
// It owns the task process from its start to the end of its whole process group, the state of the slot, the limits on an
// item's time, and the evidence of every death. It never knows Temporal, the store or how many slots there are, and one
// slot's failure touches no other. A slot stops when Stop is called: it ends its process, waits until nothing of it is left,
// and refuses further calls.
//
// Fresh mode is persistent mode with a limit of one item per process; both run through the same code. Such a process is forked
// from a template, which has imported the task and runs nothing itself, where what the import left bears a fork.
//
// Files: slot.go (what others call), owner.go (the owner goroutine: which process a call gets and when one is ended), serve.go
// (what a call does), flow.go (how its items flow), intake.go (where they come in), board.go, board_linux.go and board_other.go
// (results in shared memory), call.go (what is asked), edition.go (that a process has the code that is asked for), state.go
// (states and allowed moves), process.go (one task process: start, handshake), ending.go (its end), fork.go (whether it is
// forked or started anew), templates.go (what slots fork from), template_linux.go and template_other.go (one template),
// footprint_linux.go (what may be forked), spawn_linux.go and spawn_other.go (starting so that nothing outlives the worker),
// fence.go and fence_other.go (what ends processes when the worker was killed or stopped), warden_linux.go (the processes that
// do it), keeper_linux.go (replacing them), line_linux.go (what they are told), mark.go, mark_linux.go and mark_other.go (what
// descendants are known by), stray_linux.go and stray_other.go (those that left the process group), reach.go (whether a task's
// files can be read), environ.go and interpreter.go (what a task process may see, and which Python it is), user.go,
// user_linux.go and user_other.go (running as another user, and what keeps the worker from its tasks), watch.go (its memory),
// cap.go (its frameworks' own limits), tidy.go (how it trims), cgroup_linux.go and cgroup_other.go (its limit in the kernel), exposure_linux.go and exposure_other.go (what the
// kernel kills first), stats.go (counts), output.go (what it prints), stacks.go (where it hangs), command.go (tasks that are
// plain programs), words.go (how they are called), log.go (keys of log fields).
package slot
