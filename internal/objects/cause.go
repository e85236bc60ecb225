package objects

import (
	"errors"
	"net"
)

// cause is what an error of the S3 library comes from, without the way that it came on.
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
