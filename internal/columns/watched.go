package columns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gpumux/gpumux"
)

// watched is a file that remembers how reading it failed.
type watched struct {
	Source
	err error
}

// ReadAt reads from the file. That it ends too early is no error of reading it.
func (w *watched) ReadAt(data []byte, offset int64) (int, error) {
	n, err := w.Source.ReadAt(data, offset)
	if err != nil && err != io.EOF && w.err == nil {
		w.err = err
	}
	return n, err
}

// blame runs f. Where reading went well, its error or panic is a *gpumux.SourceError.
func (w *watched) blame(ctx context.Context, name string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			known, ok := p.(error)
			if !ok {
				known = fmt.Errorf("%v", p)
			}
			err = fmt.Errorf("it makes no sense: %w", known)
		}
		var mistake *gpumux.SourceError
		switch {
		case err == nil:
		case errors.As(err, &mistake):
			mistake.Name = cmp.Or(mistake.Name, name)
			err = mistake
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case w.err != nil:
			err = w.err
		default:
			err = &gpumux.SourceError{Name: name, Problem: fmt.Sprintf("not read as %s: %v", Parquet, err),
				Hint: "check that the file is whole, and that its ending says what it is"}
		}
	}()
	return f()
}
