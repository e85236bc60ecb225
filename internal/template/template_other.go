//go:build !linux

package template

import (
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/session"
)

// possible: what forks and what was forked are followed by means of Linux.
const possible = false

type template struct {
	all     *Set
	lineage *lineage
	task    launch.Task
	o       session.Options
	ready   chan struct{}
	process *session.Session
	failure *UnimportedError
	edition string

	lingering chan struct{}
}

func newTemplate(*Set, *lineage, launch.Task, session.Options) *template      { return nil }
func (*template) live()                                                       {}
func (*template) stop()                                                       {}
func (*template) stopping() bool                                              { return true }
func (*template) fork(launch.Task, session.Options) (*session.Session, error) { return nil, ErrNone }
