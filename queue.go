package gpumux

import (
	"fmt"
	"strings"
)

// Names that the Temporal server and clients in any language see. They never change once released.
const (
	// Queue carries workflows and light activities.
	Queue = "gpumux"
	// MapWorkflow is the registered map.
	MapWorkflow = "gpumux.Map"
	// SegmentWorkflow runs a stretch of a map that is too long for one history; only gpumux.Map starts it.
	SegmentWorkflow = "gpumux.Segment"
	// DescribeWorkflow runs DescribeWorker for clients of servers without standalone activities.
	DescribeWorkflow = "gpumux.Describe"
	// RunChunk runs the items of a chunk in a slot.
	RunChunk = "gpumux.RunChunk"
	// IndexSource finds where the items of a source begin.
	IndexSource = "gpumux.IndexSource"
	// MergeParts turns the parts of a map into one results file in input order.
	MergeParts = "gpumux.MergeParts"
	// FindEdition tells which edition of a task's code the workers of a pool have.
	FindEdition = "gpumux.FindEdition"
	// FindParts claims the folder of a map's results and tells which items have none yet.
	FindParts = "gpumux.FindParts"
	// Reduce makes one value of many; see ReduceInput.
	Reduce = "gpumux.Reduce"
	// WriteList puts a list of items into the store whose pattern is too long to travel.
	WriteList = "gpumux.WriteList"
	// WritePart moves results that became too many for the history into the store.
	WritePart = "gpumux.WritePart"
	// DescribeWorker tells a client what a worker offers: its store, pools and tasks.
	DescribeWorker = "gpumux.DescribeWorker"

	// SearchTask and SearchFailed are search attributes of maps where the server has them: the task, a Keyword, and how many items
	// failed, an Int.
	SearchTask   = "GpumuxTask"
	SearchFailed = "GpumuxFailed"

	// ProgressQuery answers with Progress.
	ProgressQuery = "progress"
	// PauseUpdate, ResumeUpdate and WindowUpdate steer a running map; each is a Temporal update.
	PauseUpdate  = "pause"
	ResumeUpdate = "resume"
	WindowUpdate = "window"
)

// PoolQueue is the task queue of a pool.
func PoolQueue(pool string) string { return Queue + "." + pool }

// DeviceQueue is the task queue of one device of a pool on one host.
func DeviceQueue(pool, host, device string) string {
	return PoolQueue(pool) + "@" + host + "/" + device
}

// RungQueue is the task queue of a rung: a pool's name, or pool@host/device for one device of it.
func RungQueue(rung string) (string, error) {
	pool, at, pinned := strings.Cut(rung, "@")
	if err := CheckPool(pool); err != nil {
		return "", err
	}
	if !pinned {
		return PoolQueue(pool), nil
	}
	host, device, ok := strings.Cut(at, "/")
	if !ok || host == "" || device == "" {
		return "", fmt.Errorf("%.200q: write one device as pool@host/device, such as gpu@node1/GPU-5c89", rung)
	}
	return DeviceQueue(pool, host, device), nil
}

// Describe is what a worker says of itself to clients, the answer of the activity DescribeWorker.
type Describe struct {
	Version string `json:"version"`
	Host    string `json:"host"`
	// Store is the blob URL of the workers' store.
	Store string     `json:"store"`
	Pools []PoolInfo `json:"pools"`
	Tasks []string   `json:"tasks"`
}

// PoolInfo describes one pool of one worker.
type PoolInfo struct {
	Name  string `json:"name"`
	Slots int    `json:"slots"`
	// MaxSlots is the most that Slots becomes where the worker finds their number by measurement, else 0.
	MaxSlots int  `json:"maxSlots,omitempty"`
	Memory   Size `json:"memory,omitempty"`
	// Means are what keeps a slot within Memory, strongest first: "MIG", "cgroup", "framework caps", "watch every 100ms".
	Means   []string `json:"means,omitempty"`
	Mode    Mode     `json:"mode"`
	Devices []string `json:"devices"`
}
