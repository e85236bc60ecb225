// Package local runs maps on this machine without a server of their own: it starts one for them, and a worker.
//
// It owns how such a run is made: the folder that keeps its state, who holds that, the server and the worker in this process, the
// edition of the task's code, and going on with a run that was interrupted. It never decides how a map runs, which is the workflow's,
// never prints, and never deletes a folder that its caller named. Everything it started stops with Session.Close; a process that is
// killed leaves a folder from which the next one goes on.
package local
