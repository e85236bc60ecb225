package slot

// User is a user of the system, other than the worker's, as whom a task runs.
type User struct {
	Name     string
	UID, GID uint32
	// Groups are the supplementary ones.
	Groups []uint32
	// Home is its HOME.
	Home string
}
