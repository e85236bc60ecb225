package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// Handler runs one item: raw JSON in, raw JSON out. An error or a panic is the item's fault. The context ends when the
// worker ends the process.
type Handler func(ctx context.Context, item json.RawMessage) (json.RawMessage, error)

// Func makes a Handler of a function on Go values. An item that does not fit In is that item's fault.
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
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(out); err != nil {
			return nil, fmt.Errorf("result is a %T, which JSON cannot hold: %w", out, err)
		}
		return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
	}
}

type running struct {
	conn  *Conn
	hello Hello
	run   int64
	n     int
}

type runningKey struct{}

// Slot is the worker's hello: the slot, device and budget that a Handler runs with. ok is false outside of Serve.
func Slot(ctx context.Context) (hello Hello, ok bool) {
	if r, ok := ctx.Value(runningKey{}).(*running); ok {
		return r.hello, true
	}
	return Hello{}, false
}

// Progress tells the worker how far the item is; value is anything that JSON holds. Outside of Serve it does nothing.
func Progress(ctx context.Context, value any) error {
	r, ok := ctx.Value(runningKey{}).(*running)
	if !ok {
		return nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("report progress: %w", err)
	}
	return r.conn.Write(ProgressReport{Run: r.run, N: r.n, Value: raw})
}
