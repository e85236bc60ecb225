package items

import (
	"errors"
	"io"
	"strings"
)

// Input is one of the inputs of SpoolAll.
type Input struct {
	// Open opens it when its turn has come.
	Open func() (io.ReadCloser, error)
	// Name, Format and Delimiter are those of SpoolOptions.
	Name      string
	Format    Format
	Delimiter rune
}

// chain is the items of several inputs, one after the other.
type chain struct {
	inputs []Input
	// at is the input that is read, with its items and what is to be closed behind it.
	at   int
	from itemReader
	body io.Closer
}

// openNext opens the input whose turn it is.
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
	c.from, _, err = openItems(body, in.Name, in.Format, in.Delimiter)
	return err
}

func (c *chain) close() {
	if c.body != nil {
		_ = c.body.Close()
		c.body = nil
	}
}

// names is what errors call the inputs.
func (c *chain) names() string {
	names := make([]string, len(c.inputs))
	for i, in := range c.inputs {
		names[i] = in.Name
	}
	return strings.Join(names, ", ")
}

func (c *chain) next() ([]byte, position, error) {
	for {
		item, at, err := c.from.next()
		if err != io.EOF {
			return item, at, err
		}
		c.close()
		c.at++
		if err := c.openNext(); err != nil {
			return nil, at, err
		}
	}
}

// EachItem calls f with every item of the inputs, each as soon as it has come and valid
// until f returns; an error of f ends the walk. In the place of an item whose line is
// wrong f gets the mistake. Where no line is to blame, such as in a damaged archive, the
// walk ends with a *SourceError.
func EachItem(inputs []Input, f func(item []byte, wrong *SourceError) error) error {
	from := &chain{inputs: inputs}
	defer from.close()
	err := from.openNext()
	for err == nil {
		var item []byte
		var wrong *SourceError
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
