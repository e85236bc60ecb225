package objects

import (
	"errors"
	"net"
)

// cause returns the root of an S3 error, without the library's account of the call.
func cause(err error) error {
	if network, ok := errors.AsType[*net.OpError](err); ok {
		return network
	}
	for {
		outer, wraps := errors.AsType[interface {
			error
			Unwrap() error
		}](err)
		if !wraps || outer.Unwrap() == nil {
			return err
		}
		err = outer.Unwrap()
	}
}
