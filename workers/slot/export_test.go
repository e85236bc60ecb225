package slot

import "time"

// Patient sets how long the slot waits for a killed process before it says that the process does not end.
func (o Options) Patient(patience time.Duration) Options {
	o.patience = patience
	return o
}
