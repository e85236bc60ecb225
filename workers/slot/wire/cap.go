package wire

// Cap says, whenever a framework begins to use the slot's device, whether the framework's own limit holds.
type Cap struct {
	// Framework is torch, cupy, jax or tensorflow.
	Framework string `json:"framework"`
	// Error says why the limit does not hold. Empty: it was tried and holds.
	Error string `json:"error,omitempty"`
	// Reserved are the bytes that frameworks' allocators have taken on all devices of the slot so far.
	Reserved int64 `json:"reserved,omitempty"`
	// Wait says that the process does nothing until it is told Next, so that what it holds beside Reserved can be measured.
	Wait bool `json:"wait,omitempty"`
}

func (Cap) kind() string { return "cap" }
