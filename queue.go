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
)
