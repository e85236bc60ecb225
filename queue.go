package gpumux

import "github.com/gpumux/gpumux/internal/names"

// Names that clients in any language see. They never change once released.
const (
	// Queue carries workflows and light activities.
	Queue = names.Queue
	// MapWorkflow is the registered map.
	MapWorkflow = "gpumux.Map"

	// ProgressQuery answers with Progress.
	ProgressQuery = "progress"
	// PauseUpdate, ResumeUpdate and WindowUpdate steer a running map.
	PauseUpdate  = "pause"
	ResumeUpdate = "resume"
	WindowUpdate = "window"

	// NexusService is the Nexus service of the workers, at the queue Queue. MapOperation
	// takes a MapInput and gives a Summary. MapIDHeader of a request is the map's ID, whose
	// running map it then joins. Default: an ID made of the request's.
	NexusService = "gpumux"
	MapOperation = "map"
	MapIDHeader  = "gpumux-map-id"
)
