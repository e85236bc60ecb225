package task

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/internal/wire"
)

// Handler runs one item: raw JSON in, raw JSON out. An error or a panic is the item's
// fault. The context ends when the worker ends the process.
type Handler func(ctx context.Context, item json.RawMessage) (json.RawMessage, error)

// Func makes a Handler of a function. An item that does not fit In is its fault.
func Func[In, Out any](f func(ctx context.Context, in In) (Out, error)) Handler {
	return func(ctx context.Context, item json.RawMessage) (json.RawMessage, error) {
		var in In
		if err := json.Unmarshal(item, &in); err != nil {
			return nil, fmt.Errorf("item is not a %T: %w", in, err)
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		value, err := text.Marshal(out)
		if err != nil {
			return nil, fmt.Errorf("result is a %T, which JSON cannot hold: %w", out, err)
		}
		return value, nil
	}
}

// position is the run of a Handler's item, and the item's place in it.
type position struct {
	*process
	run int64
	n   int
}

type positionKey struct{}

// Seat is where a task runs.
type Seat struct {
	// Slot is its name, such as gpu/0, and Device a UUID or CPU.
	Slot, Device string
	// Memory is the budget in bytes; 0: none.
	Memory int64
	Mode   gpumux.Mode
}

// SeatOf says where the Handler with this context runs. ok is false outside of Serve.
func SeatOf(ctx context.Context) (seat Seat, ok bool) {
	at, ok := ctx.Value(positionKey{}).(*position)
	if !ok {
		return Seat{}, false
	}
	h := at.hello
	return Seat{Slot: h.Slot, Device: h.Device, Memory: h.Memory, Mode: h.Mode}, true
}

// Progress reports how far the item is, as JSON. Outside of Serve it does nothing.
func Progress(ctx context.Context, value any) error {
	at, ok := ctx.Value(positionKey{}).(*position)
	if !ok {
		return nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("report progress: %w", err)
	}
	return at.conn.Write(wire.ProgressReport{Run: at.run, N: at.n, Value: raw})
}
