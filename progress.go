package gpumux

import (
	"fmt"
	"math"
	"time"
)

// Summary is the result of the workflow gpumux.Map.
type Summary struct {
	Task      string              `json:"task"`
	Items     int64               `json:"items"`
	Succeeded int64               `json:"succeeded"`
	Failed    int64               `json:"failed"`
	Faults    map[FaultKind]int64 `json:"faults,omitempty"`
	// Output is the URL of the results file. Results are its contents in input order, where
	// they are at most InlineItems and InlineBytes.
	Output  string   `json:"output,omitempty"`
	Results []Result `json:"results,omitempty"`
	// Busy is the time that slots spent on items, summed.
	Busy Duration `json:"busy"`
	// Elapsed is the time from the start of the workflow to its end.
	Elapsed Duration `json:"elapsed"`
	Chunks  int64    `json:"chunks"`
	// Peak is the memory that the items needed, where it was measured.
	Peak *Peaks `json:"peak,omitempty"`
	// GPU is what GPUs did for them.
	GPU *GPUUse `json:"gpu,omitempty"`
	// PassedOver are pools of the ladder that had no worker with a healthy device for a
	// time.
	PassedOver []string `json:"passedOver,omitempty"`
	// Stages are those of a map that has some, as they were at its end.
	Stages []StageProgress `json:"stages,omitempty"`
}

// Progress is the answer to the query "progress".
type Progress struct {
	Task      string              `json:"task"`
	Phase     Phase               `json:"phase"`
	Items     int64               `json:"items"`
	Succeeded int64               `json:"succeeded"`
	Failed    int64               `json:"failed"`
	Faults    map[FaultKind]int64 `json:"faults,omitempty"`
	// InFlight is the number of chunks handed to pools and not yet back.
	InFlight int   `json:"inFlight"`
	Window   int   `json:"window"`
	Chunk    int   `json:"chunk"`
	Chunks   int64 `json:"chunks"`
	Paused   bool  `json:"paused"`
	// WaitingFor names what holds the map up, as far as its workflow knows, such as "a slot
	// of pool gpu". Empty: its work goes on.
	WaitingFor string    `json:"waitingFor,omitempty"`
	Started    time.Time `json:"started"`
	// Rate is items per second of workflow time, over the finished chunks.
	Rate float64 `json:"rate"`
	// Backlog counts the items without a result by rung of the ladder, served or not;
	// ItemTime is the time of one in a slot, 0 while unknown.
	Backlog  []RungBacklog `json:"backlog,omitempty"`
	ItemTime Duration      `json:"itemTime,omitempty"`
	// Recent are the newest failures, at most five.
	Recent []Result `json:"recent,omitempty"`
	Output string   `json:"output,omitempty"`
	// Waiting is how many items raised and wait to be tried again.
	Waiting int64 `json:"waiting,omitempty"`
	// Lost says why finished items run again, where their results were damaged or gone.
	Lost string `json:"lost,omitempty"`
	// PassedOver are the pools of the ladder that have no worker with a healthy device.
	PassedOver []string `json:"passedOver,omitempty"`
	// Peak is the memory that the finished items needed, where it was measured.
	Peak *Peaks `json:"peak,omitempty"`
	// GPU is what GPUs did for the finished chunks.
	GPU *GPUUse `json:"gpu,omitempty"`
	// Stages are those of a map that has some. Succeeded then counts the items that have
	// gone through all, Failed those that failed in any.
	Stages []StageProgress `json:"stages,omitempty"`
}

// StageProgress is how far a stage of a map is.
type StageProgress struct {
	Task   string   `json:"task"`
	Ladder []string `json:"ladder"`
	// Succeeded and Failed count the items that ended in this stage. Running are those of
	// the InFlight chunks, Waiting those that could begin here.
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Running   int64 `json:"running"`
	Waiting   int64 `json:"waiting"`
	InFlight  int   `json:"inFlight"`
	Chunks    int64 `json:"chunks"`
	// Slots is how many it has, as far as workers have told, ItemTime the time of an item
	// in one; 0: not known.
	Slots    int      `json:"slots,omitempty"`
	ItemTime Duration `json:"itemTime,omitempty"`
	// Busy is the time that slots spent on its items, summed.
	Busy Duration `json:"busy"`
	Peak *Peaks   `json:"peak,omitempty"`
	GPU  *GPUUse  `json:"gpu,omitempty"`
}

// Rate is how many items a second the stage can do with its slots, or 0 while unknown.
func (s StageProgress) Rate() float64 {
	if s.ItemTime <= 0 {
		return 0
	}
	return float64(s.Slots) / time.Duration(s.ItemTime).Seconds()
}

// Advice names the stage that the others wait for, and how many slots would keep up with
// the next slowest one. It is empty where no stage is much slower, or stages share pools.
func Advice(stages []StageProgress) string {
	slow, next, pools := -1, -1, map[string]bool{}
	for i, s := range stages {
		if s.Rate() == 0 {
			return ""
		}
		for _, pool := range s.Ladder {
			if pools[pool] {
				return ""
			}
			pools[pool] = true
		}
		switch {
		case slow < 0 || s.Rate() < stages[slow].Rate():
			slow, next = i, slow
		case next < 0 || s.Rate() < stages[next].Rate():
			next = i
		}
	}
	if next < 0 || stages[next].Rate() < 1.2*stages[slow].Rate() {
		return ""
	}
	s, other := stages[slow], stages[next]
	slots := fmt.Sprintf("%d slots give", s.Slots)
	if s.Slots == 1 {
		slots = "1 slot gives"
	}
	rate := func(s StageProgress) string {
		return fmt.Sprintf("%.*g/s", max(3, 1+int(math.Log10(s.Rate()))), s.Rate())
	}
	return fmt.Sprintf("%s waits for %s: %s %s, %d would keep up with %s", other.Task, s.Task, slots, rate(s),
		int(math.Ceil(float64(s.Slots)*other.Rate()/s.Rate())), rate(other))
}

// RungBacklog is the work left on a rung of a map's ladder: a pool, or one device of it.
type RungBacklog struct {
	Rung  string `json:"rung"`
	Items int64  `json:"items"`
}

// Phase is a stage of a map.
type Phase string

const (
	PhaseIndexing Phase = "indexing"
	PhaseRunning  Phase = "running"
	PhaseMerging  Phase = "merging"
	PhaseDone     Phase = "done"
)

// Rung is a queue and who serves it.
type Rung struct {
	// Name is the pool, or "workflows" for the queue of workflows.
	Name  string `json:"name"`
	Queue string `json:"queue"`
	// Pollers asked for work lately; Workers send heartbeats, and may be too busy to ask.
	Pollers int `json:"pollers"`
	Workers int `json:"workers"`
}

// Served reports whether somebody takes work from the queue.
func (r Rung) Served() bool { return r.Pollers+r.Workers > 0 }

// RunningItem is an item that runs in a slot, or the first of a micro-batch that does.
type RunningItem struct {
	// Index is -1 where a process still starts.
	Index int64 `json:"index"`
	// Worker is its identity, Slot pool/number.
	Worker string   `json:"worker"`
	Slot   string   `json:"slot"`
	Device string   `json:"device"`
	For    Duration `json:"for"`
	// Progress is the beginning of the JSON that the item, or its process, reported last.
	Progress string `json:"progress,omitempty"`
}
