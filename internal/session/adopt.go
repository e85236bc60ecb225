package session

import (
	"os"

	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
)

// Adopt is Start for a process of one item that fork makes. fork gets the file for
// output and the process's end of the wire, which it closes.
func Adopt(task launch.Task, o Options, fork func(output, wire *os.File) (pid int, err error)) (*Session, error) {
	o.Single = true
	p, files, err := connected(task, o)
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	if p.Process, err = process.New(process.TaskExposure, p.log()); err != nil {
		p.disconnect()
		return nil, err
	}
	pid, err := fork(p.Process.Out.File, files[0])
	if err == nil {
		err = p.Process.Adopt(pid)
	}
	if err != nil {
		p.disconnect()
		p.Process.Disown()
		return nil, err
	}
	p.follow()
	go p.listen()
	return p, nil
}
