package slot

import "time"

// Patient is the options of a slot that waits so long for a killed process before it says that it does not end.
func (o Options) Patient(patience time.Duration) Options {
	o.patience = patience
	return o
}
