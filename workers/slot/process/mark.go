package process

// workerToken and processToken mark every descendant of this worker in its environment, so that those that left their process
// group are found; the numbers of mark_linux.go find those that cleared it.
const (
	workerToken  = "GPUMUX_WORKER"
	processToken = "GPUMUX_PROCESS"
)

// mark is what a task process and its descendants are known by: its token and number, and the number of its worker. A number of
// 0 is none.
type mark struct {
	token          string
	number, worker uint64
}
