package gputest

import (
	"context"
	"encoding/json"
	"iter"
	"os"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
)

// Work is a calls.Work of functions, none of which has to be set.
type Work struct {
	From   iter.Seq2[calls.Item, error]
	OnMeet func(calls.Process) error
	OnKeep func(ctx context.Context, index int64, name string, file *os.File) error
	OnDone func(calls.Done)
	Use    *gpumux.GPUUse
}

// Values makes items of values that can be JSON.
func Values(items ...any) iter.Seq2[calls.Item, error] {
	return func(yield func(calls.Item, error) bool) {
		for i, item := range items {
			raw, err := json.Marshal(item)
			if !yield(calls.Item{Index: int64(i), Value: raw}, err) {
				return
			}
		}
	}
}

// Items are From.
func (w *Work) Items() iter.Seq2[calls.Item, error] {
	if w.From == nil {
		return func(func(calls.Item, error) bool) {}
	}
	return w.From
}

// Meet is OnMeet.
func (w *Work) Meet(p calls.Process) error {
	if w.OnMeet == nil {
		return nil
	}
	return w.OnMeet(p)
}

// Used sets Use.
func (w *Work) Used(use *gpumux.GPUUse) { w.Use = use }

// Keep is OnKeep.
func (w *Work) Keep(ctx context.Context, index int64, name string, file *os.File) error {
	return w.OnKeep(ctx, index, name, file)
}

// Done is OnDone.
func (w *Work) Done(d calls.Done) {
	if w.OnDone != nil {
		w.OnDone(d)
	}
}
