package slot

import (
	"time"
)

// Recycles are the reasons for which a process is recycled.
func Recycles() []string {
	return []string{forItems, forFull}
}

// Stats count the work of a slot since it began.
type Stats struct {
	// Processes were started; Items were finished in them, commands included.
	Processes, Items int64
	// Held is the memory of the process and its descendants, in bytes; 0 means unknown.
	Held int64
	// Recycled counts processes replaced although they could go on, by reason.
	Recycled map[string]int64
	// Running is the item that runs; nil where none does.
	Running *Running
	// Starting is the start of a process under way; nil where there is none.
	Starting *Start
}

// Start is the start of a task's process, until it has imported the task.
type Start struct {
	Task  string
	Began time.Time
}

// Running is an item that runs, or of several the one that was sent first.
type Running struct {
	Map   string
	Index int64
	Began time.Time
	// Progress is the beginning of the JSON that it, or else its process, reported last.
	Progress string
}
