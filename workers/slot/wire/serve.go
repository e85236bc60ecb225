package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpumux/gpumux"
)

// Serve is the main of a task process written in Go: it runs the items that the worker sends with the handler that the
// worker names, by target or else by task name. It returns nil when the worker says stop or is gone, an error when the ctx
// ended, SIGTERM came or the wire broke. Main should exit with a status other than 0 on an error.
//
//	func main() {
//		err := wire.Serve(context.Background(), map[string]wire.Handler{"embed": wire.Func(embed)})
//		if err != nil {
//			log.Fatal(err)
//		}
//	}
func Serve(ctx context.Context, handlers map[string]Handler) error {
	socket, err := stream(os.NewFile(Descriptor, "wire"))
	if err != nil {
		return fmt.Errorf("descriptor %d: %w; a gpumux worker starts this program, see docs/wire.md", Descriptor, err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGINT)
	return serve(ctx, socket, handlers)
}

func serve(ctx context.Context, socket io.ReadWriteCloser, handlers map[string]Handler) error {
	conn := NewProcess(socket)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	err := converse(ctx, conn, handlers)
	if ctx.Err() != nil {
		return fmt.Errorf("task process was told to end: %w", context.Cause(ctx))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return err
}

// converse speaks the protocol until stop (nil) or an error.
func converse(ctx context.Context, conn *Conn, handlers map[string]Handler) error {
	if err := conn.Write(ProcessHello{Version: Version, PID: os.Getpid(), Runtime: runtime.Version()}); err != nil {
		return err
	}
	first, err := conn.Read()
	if err != nil {
		return err
	}
	hello := first.(Hello)
	if hello.Board > 0 {
		// This side answers in frames, which a Go program's items leave time for.
		syscall.Close(BoardDescriptor)
	}
	handler, err := find(handlers, hello)
	if err != nil {
		return errors.Join(err, conn.Write(Fault{Raised: Raised{Class: string(gpumux.BadInput), Message: err.Error()}}))
	}
	if err := conn.Write(Ready{Trim: true}); err != nil {
		return err
	}
	c := conversation{conn: conn, hello: hello, handler: handler, out: openOutput(), peaks: peaks{told: hello.Device == "CPU"}}
	defer c.out.close()
	for goesOn := true; goesOn; {
		if goesOn, err = c.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// conversation is converse after its handshake.
type conversation struct {
	conn    *Conn
	hello   Hello
	handler Handler
	out     *printed
	peaks   peaks
	// ahead are messages that came before their turn.
	ahead []Message
}

// next does what the next message asks for; false says that the worker wants to end.
func (c *conversation) next(ctx context.Context) (goesOn bool, err error) {
	var m Message
	if len(c.ahead) > 0 {
		m, c.ahead = c.ahead[0], c.ahead[1:]
	} else if m, err = c.conn.Read(); err != nil {
		return false, err
	}
	switch m := m.(type) {
	case Trim:
		begin := time.Now()
		debug.FreeOSMemory()
		return true, c.conn.Write(Trimmed{Busy: time.Since(begin).Seconds()})
	case Run:
		return c.run(ctx, m)
	}
	return false, nil
}

func (c *conversation) run(ctx context.Context, run Run) (goesOn bool, err error) {
	for n, item := range run.Items {
		at := &running{conn: c.conn, hello: c.hello, run: run.Run, n: n}
		began := time.Now()
		answer := at.item(context.WithValue(ctx, runningKey{}, at), c.handler, item, max(1, run.Attempts))
		answer = note(answer, c.out.grown(), c.peaks.of(began))
		if err := c.conn.Write(answer); err != nil {
			return false, err
		}
		// After a fault the worker may end this process; until it says otherwise no item begins.
		for _, wait := answer.(Fault); wait; {
			m, err := c.conn.Read()
			if err != nil {
				return false, err
			}
			switch m.(type) {
			case Next:
				wait = false
			case Run, Trim:
				c.ahead = append(c.ahead, m)
			default:
				return false, nil
			}
		}
	}
	return true, nil
}

func find(handlers map[string]Handler, hello Hello) (Handler, error) {
	for _, name := range []string{hello.Target, hello.Task} {
		if h := handlers[name]; h != nil {
			return h, nil
		}
	}
	return nil, fmt.Errorf("this program has no task %q; it has: %s",
		hello.Target, strings.Join(slices.Sorted(maps.Keys(handlers)), ", "))
}

// item tries one item up to attempts times and says what it came to.
func (at *running) item(ctx context.Context, handler Handler, item json.RawMessage, attempts int) Message {
	begin := time.Now()
	for tried := 1; ; tried++ {
		value, err := call(ctx, handler, item)
		if err == nil && len(value)+maxHeader > MaxFrame {
			err = fmt.Errorf("result has %d bytes, the wire carries at most %d; write it to a file and return its path", len(value), MaxFrame)
		}
		busy := time.Since(begin).Seconds()
		switch {
		case err == nil:
			r := Results{Run: at.run, N: at.n, Values: []json.RawMessage{value}, Busy: []float64{busy}}
			if tried > 1 {
				r.Attempts = []int{tried}
			}
			return r
		case tried >= attempts || ctx.Err() != nil:
			f := Fault{Run: at.run, N: at.n, Busy: busy, Raised: raised(err)}
			if tried > 1 {
				f.Attempts = tried
			}
			return f
		}
	}
}

// note adds to an answer where the output ends and what was held, each 0 when there is nothing to say.
func note(m Message, out, peak int64) Message {
	switch answer := m.(type) {
	case Results:
		answer.Out, answer.Peak = out, peak
		return answer
	case Fault:
		answer.Out, answer.Peak = out, peak
		return answer
	}
	return m
}

// maxHeader is more than the header of a single result ever takes.
const maxHeader = 1 << 10

func call(ctx context.Context, handler Handler, item json.RawMessage) (value json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			value, err = nil, caught(p)
		}
	}()
	value, err = handler(ctx, item)
	if err == nil && len(value) == 0 {
		value = json.RawMessage("null")
	}
	return value, err
}
