package items

import (
	"errors"
	"fmt"
	"io"

	"github.com/gpumux/gpumux"
)

// Input is a file, or another stream of items.
type Input struct {
	// Open opens it when its turn has come.
	Open   func() (io.ReadCloser, error)
	Name   string
	Format Format
	// Delimiter stands between the cells of CSV. Default: the format's; a header that seems
	// to have another is an error then.
	Delimiter rune
	// Text are columns of CSV whose cells stay text where they are written as numbers.
	Text []string
	// Drop leaves out the items of which it is true. Default: none.
	Drop func(item []byte) bool
}

// chain is the items of several inputs, one after the other.
type chain struct {
	inputs []Input
	// at is the input being read, with its items and its closer.
	at   int
	from itemReader
	body io.Closer
}

func (c *chain) openNext() error {
	if c.at >= len(c.inputs) {
		return io.EOF
	}
	in := c.inputs[c.at]
	body, err := in.Open()
	if err != nil {
		return err
	}
	c.body = body
	c.from, _, err = openItems(body, in)
	return c.named(err)
}

// named adds the name of the input to an error of reading it.
func (c *chain) named(err error) error {
	if err == nil || errors.As(err, new(*gpumux.SourceError)) {
		return err
	}
	return fmt.Errorf("read %s: %w", c.inputs[c.at].Name, err)
}

func (c *chain) close() {
	if c.body != nil {
		_ = c.body.Close()
		c.body = nil
	}
}

func (c *chain) next() ([]byte, position, error) {
	for {
		item, at, err := c.from.next()
		if drop := c.inputs[c.at].Drop; err == nil && drop != nil && drop(item) {
			continue
		}
		if err != io.EOF {
			return item, at, c.named(err)
		}
		c.close()
		c.at++
		if err := c.openNext(); err != nil {
			return nil, at, err
		}
	}
}

// EachItem calls f with every item of the inputs as soon as it has come, valid until f
// returns; its error ends the walk. For a wrong line f gets the mistake instead. Where
// no line is to blame, as in a damaged archive, the walk ends with a *gpumux.SourceError.
func EachItem(inputs []Input, f func(item []byte, wrong *gpumux.SourceError) error) error {
	from := &chain{inputs: inputs}
	defer from.close()
	err := from.openNext()
	for err == nil {
		var item []byte
		var wrong *gpumux.SourceError
		input := from.at
		if item, _, err = from.next(); errors.As(err, &wrong) && wrong.Line > 0 && input == from.at {
			err = nil
		}
		if err == nil {
			err = f(item, wrong)
		}
	}
	if err == io.EOF {
		return nil
	}
	return err
}
