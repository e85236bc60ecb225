package process

// workerToken and processToken mark every descendant of this worker in its environment, so it is found outside its process group.
// The numbers of mark_linux.go find one that cleared its environment.
const (
	workerToken  = "GPUMUX_WORKER"
	processToken = "GPUMUX_PROCESS"
)

// mark identifies a task process and its descendants: its token and number, and its worker's number. Number 0 is none.
type mark struct {
	token          string
	number, worker uint64
}
