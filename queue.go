package gpumux

import "github.com/gpumux/gpumux/internal/names"

// Names that the Temporal server and clients in any language see. They never change once released.
const (
	// Queue carries workflows and light activities.
	Queue = names.Queue
	// MapWorkflow is the registered map.
	MapWorkflow = "gpumux.Map"

	// ProgressQuery answers with Progress.
	ProgressQuery = "progress"
	// PauseUpdate, ResumeUpdate and WindowUpdate steer a running map; each is a Temporal update.
	PauseUpdate  = "pause"
	ResumeUpdate = "resume"
	WindowUpdate = "window"
)

// Describe is what a worker tells clients about itself, the answer of the activity DescribeWorker.
type Describe struct {
	// Identity is the worker's, host/process.
	Identity string `json:"identity"`
	Version  string `json:"version"`
	Host     string `json:"host"`
	// Store is the blob URL of the workers' store.
	Store string     `json:"store"`
	Pools []PoolInfo `json:"pools"`
	Tasks []string   `json:"tasks"`
	// Modes are those of the tasks that have a mode of their own; the others have their pool's.
	Modes map[string]Mode `json:"modes,omitempty"`
}

// PoolInfo describes one pool of one worker.
type PoolInfo struct {
	Name  string `json:"name"`
	Slots int    `json:"slots"`
	// Busy is how many of the slots run items or are leased, Leased how many are leased, Leases how many may be at a time.
	Busy   int `json:"busy"`
	Leased int `json:"leased,omitempty"`
	Leases int `json:"leases,omitempty"`
	// MaxSlots is the most that Slots becomes where the worker finds their number by measurement, else 0.
	MaxSlots int  `json:"maxSlots,omitempty"`
	Memory   Size `json:"memory,omitempty"`
	// Means are what keeps a slot within Memory, strongest first: "MIG", "MPS", "cgroup", "framework caps", "watch every 100ms".
	Means   []string `json:"means,omitempty"`
	Mode    Mode     `json:"mode"`
	Devices []string `json:"devices"`
	// Seats are the slots as they are now, in order. A worker of an older release says nothing of them.
	Seats []SlotInfo `json:"seats,omitempty"`
}

// SlotInfo is what a slot does now.
type SlotInfo struct {
	// Name is pool/number.
	Name   string `json:"name"`
	Device string `json:"device"`
	// State is vacant, starting, ready, busy, poisoned, reclaiming, backoff or stopped.
	State string `json:"state"`
	// Task is what its process has loaded, PID the process. They are empty where there is none.
	Task string `json:"task,omitempty"`
	PID  int    `json:"pid,omitempty"`
	// Map is the map whose items it runs, or the workflow that leases it.
	Map string `json:"map,omitempty"`
	// Item is the index of the item that runs, of a micro-batch that of the first, and For how long it has run. It is nil where none does,
	// and for a call of a lease. Progress is the beginning of the JSON that the item reported last.
	Item     *int64   `json:"item,omitempty"`
	For      Duration `json:"for,omitempty"`
	Progress string   `json:"progress,omitempty"`
	// Held is what its process and that one's children hold now, of the device or, on the CPU, of the host. 0 means unknown.
	Held Size `json:"held,omitempty"`
	// Items is how many it has run since the worker's start, Faults how many of them failed or ended its process.
	Items  int64 `json:"items"`
	Faults int64 `json:"faults,omitempty"`
}
