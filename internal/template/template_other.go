//go:build !linux

package template

import (
	"time"

	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/session"
)

// template is never made: a program adopts no orphans here.
type template struct {
	all     *Set
	task    launch.Task
	o       session.Options
	edition string
	refused time.Time
	process *session.Session
	ready   chan struct{}
}

func newTemplate(*Set, launch.Task, session.Options, string) *template        { return nil }
func (*template) live()                                                       {}
func (*template) stop()                                                       {}
func (*template) stopping() bool                                              { return true }
func (*template) fork(launch.Task, session.Options) (*session.Session, error) { return nil, ErrNone }
