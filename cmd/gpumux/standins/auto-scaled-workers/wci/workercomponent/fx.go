// Package workercomponent adds nothing to the workers of a server.
package workercomponent

import "go.uber.org/fx"

var Module = fx.Options()
