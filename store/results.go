package store

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/gpumux/gpumux"
)

// Results reads a results file in order. Each result is the caller's to keep. After an error nothing follows. To copy the
// file as it is, use Read.
func (s *Store) Results(ctx context.Context, name string) iter.Seq2[gpumux.Result, error] {
	return s.results(ctx, name, ParseResult)
}

// StoredResults is Results with arrays as Result.Arrays, to be stored again.
func (s *Store) StoredResults(ctx context.Context, name string) iter.Seq2[gpumux.Result, error] {
	return s.results(ctx, name, ParseStored)
}

func (s *Store) results(
	ctx context.Context, name string, parse func(line []byte) (gpumux.Result, error),
) iter.Seq2[gpumux.Result, error] {
	return func(yield func(gpumux.Result, error) bool) {
		o, err := s.open(ctx, name, 0, -1)
		if err != nil {
			yield(gpumux.Result{}, err)
			return
		}
		defer o.Close()
		lines := lineReader{r: bufio.NewReaderSize(o, 256<<10), left: o.body.Size()}
		for number := 1; ; number++ {
			line, err := lines.read()
			if err == io.EOF {
				return
			}
			if err == nil {
				err = ctx.Err()
			}
			var r gpumux.Result
			if err == nil {
				r, err = parse(line)
			}
			if err != nil {
				yield(gpumux.Result{}, fmt.Errorf("%s:%d: %w", o.url, number, err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}
