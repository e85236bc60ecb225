package objects

import (
	"errors"
	"net"
)

// caused is an error of the S3 library that says its cause, and not on what way it came.
type caused struct {
	text string
	err  error
}

func (c *caused) Error() string { return c.text }
func (c *caused) Unwrap() error { return c.err }

// cause shortens an error of opening a bucket: to the server's words, else to those of
// the network, else to what stopped the request, or the reading of its settings.
func cause(err error) error {
	var server interface {
		ErrorCode() string
		ErrorMessage() string
	}
	var network *net.OpError
	var operation interface {
		Operation() string
		Unwrap() error
	}
	text := err.Error()
	switch inner := errors.Unwrap(err); {
	case errors.As(err, &server) && server.ErrorCode() != "":
		if text = server.ErrorCode(); server.ErrorMessage() != "" {
			text += ": " + server.ErrorMessage()
		}
	case errors.As(err, &network):
		text = network.Error()
	case errors.As(err, &operation):
		text = operation.Unwrap().Error()
	case inner != nil:
		text = inner.Error()
	}
	return &caused{text, err}
}
