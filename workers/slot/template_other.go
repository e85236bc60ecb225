//go:build !linux

package slot

// canFork: what forks and what was forked are followed by means of Linux.
const canFork = false

type template struct {
	lineage *lineage
	task    Task
	o       Options
	ready   chan struct{}
	process *session
	failure *unimported
	edition string

	lingering chan struct{}
}

func newTemplate(*Templates, *lineage, Call, Options) *template { return nil }
func (*template) live()                                         {}
func (*template) stop()                                         {}
func (*template) stopping() bool                                { return true }
func (*template) fork(Task, Options, int) (*session, error)     { return nil, errNoFork }
