//go:build !linux || !cgo

package gpu

import (
	"context"
	"runtime"
)

// openDriver: NVML is reached through cgo, and only on Linux.
func openDriver(context.Context, string) (driver, error) {
	return nil, &absentError{
		what: "this gpumux was built for " + runtime.GOOS + "/" + runtime.GOARCH + " without NVML",
		hint: "use a build for Linux made with CGO_ENABLED=1, or devices: cpu",
	}
}
