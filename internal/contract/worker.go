package contract

import (
	"fmt"

	"github.com/gpumux/gpumux"
)

// Identity names a worker: host/process.
func Identity(host string, process int) string { return fmt.Sprintf("%s/%d", host, process) }

// WorkerInfo is the description that a worker gives of itself.
type WorkerInfo struct {
	Identity string `json:"identity"`
	Version  string `json:"version"`
	Host     string `json:"host"`
	// Store is the blob URL of the workers' store.
	Store string     `json:"store"`
	Pools []PoolInfo `json:"pools"`
	Tasks []string   `json:"tasks"`
	// Edition is that of the code of the task that was asked about, if it has the task.
	Edition string `json:"edition,omitempty"`
	// Modes has the tasks that have a mode of their own.
	Modes map[string]gpumux.Mode `json:"modes,omitempty"`
	// Notices say what changes what maps get here, such as a budget that nothing enforces.
	Notices []string `json:"notices,omitempty"`
}

// DescribeInput is the input of DescribeWorker, which needs none.
type DescribeInput struct {
	// Task asks for the edition of a task's code.
	Task string `json:"task"`
}

type PoolInfo struct {
	Name  string `json:"name"`
	Slots int    `json:"slots"`
	Busy  int    `json:"busy"`
	// MaxSlots is the most that Slots becomes where the worker measures, else 0.
	MaxSlots int         `json:"maxSlots,omitempty"`
	Memory   gpumux.Size `json:"memory,omitempty"`
	// Means keep a slot within Memory, strongest first: "MIG", "MPS", "framework caps",
	// "watch every 100ms".
	Means   []string    `json:"means,omitempty"`
	Mode    gpumux.Mode `json:"mode"`
	Devices []string    `json:"devices"`
	// Cordoned has the reason for each of Devices that gets no new calls.
	Cordoned map[string]string `json:"cordoned,omitempty"`
	Seats    []SlotInfo        `json:"seats,omitempty"`
	// Computing is how busy each GPU was in the last minute, in percent of five seconds
	// each, the oldest first.
	Computing map[string][]int `json:"computing,omitempty"`
}

type SlotInfo struct {
	// Name is pool/number.
	Name   string `json:"name"`
	Device string `json:"device"`
	// State is vacant, starting, ready, busy, poisoned, reclaiming, backoff or stopped.
	State string `json:"state"`
	// Task is the task that its process has loaded or is starting with, PID the process, if
	// there is one.
	Task string `json:"task,omitempty"`
	PID  int    `json:"pid,omitempty"`
	// Map is the map whose items it runs.
	Map string `json:"map,omitempty"`
	// Item runs, or is the first of a micro-batch; nil: none runs. For is its time so far,
	// or that of a start, Progress the beginning of its or its process's last report.
	Item     *int64          `json:"item,omitempty"`
	For      gpumux.Duration `json:"for,omitempty"`
	Progress string          `json:"progress,omitempty"`
	// Held is the memory of the process and its children on the device, or on the CPU of the
	// host. 0 means unknown.
	Held gpumux.Size `json:"held,omitempty"`
	// Items is how many it has run since the worker's start, Faults how many of them failed.
	Items  int64 `json:"items"`
	Faults int64 `json:"faults,omitempty"`
}
