package slot

type State string

const (
	// Vacant: no process yet, or none any more.
	Vacant State = "vacant"
	// Starting: the process starts and imports the task.
	Starting State = "starting"
	// Ready: the process waits for items.
	Ready State = "ready"
	// Busy: items run.
	Busy State = "busy"
	// Poisoned: the process lives but must not run another item.
	Poisoned State = "poisoned"
	// Reclaiming: the process group is ended, and its memory awaited back.
	Reclaiming State = "reclaiming"
	// Backoff: the last start failed; the next one waits.
	Backoff State = "backoff"
	// Stopped: the slot takes no more calls.
	Stopped State = "stopped"
)

// next lists every allowed move. Others are impossible: a poisoned process never becomes
// ready again, and nothing leaves stopped.
var next = map[State][]State{
	Vacant:     {Starting, Backoff, Stopped},
	Starting:   {Ready, Busy, Reclaiming},
	Ready:      {Busy, Reclaiming},
	Busy:       {Ready, Poisoned, Reclaiming},
	Poisoned:   {Reclaiming},
	Reclaiming: {Vacant},
	Backoff:    {Vacant},
	Stopped:    {},
}

// States are all states in the order in which a process passes them.
func States() []State {
	return []State{Vacant, Starting, Ready, Busy, Poisoned, Reclaiming, Backoff, Stopped}
}
