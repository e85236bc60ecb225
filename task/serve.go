package task

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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/wire"
)

// Serve is the main of a task process written in Go: it runs the worker's items with the
// handler named by target or task. It returns nil when the worker says stop or is gone,
// and an error when ctx ends, SIGTERM comes or the wire breaks. Main should then exit
// with a status other than 0.
func Serve(ctx context.Context, handlers map[string]Handler) error {
	socket, err := wire.Inherited()
	if err != nil {
		return fmt.Errorf("%w; a gpumux worker starts this program, see docs/wire.md", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGINT)
	return serve(ctx, socket, handlers)
}

func serve(ctx context.Context, socket io.ReadWriteCloser, handlers map[string]Handler) error {
	conn := wire.NewProcess(socket)
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

// converse speaks until stop or the end of the stream, both io.EOF, or another error.
func converse(ctx context.Context, conn *wire.Conn, handlers map[string]Handler) error {
	if err := conn.Write(wire.ProcessHello{Version: wire.Version, PID: os.Getpid(), Runtime: runtime.Version()}); err != nil {
		return err
	}
	first, err := conn.Read()
	if err != nil {
		return err
	}
	hello := first.(wire.Hello)
	if hello.Board > 0 {
		// A Go program answers in frames: its items leave time for that.
		syscall.Close(wire.BoardDescriptor)
	}
	handler := handlers[hello.Target]
	if handler == nil {
		handler = handlers[hello.Task]
	}
	if handler == nil {
		err := fmt.Errorf("this program has no task %q; it has: %s", hello.Target, strings.Join(slices.Sorted(maps.Keys(handlers)), ", "))
		return errors.Join(err, conn.Write(wire.Fault{Raised: wire.Raised{Class: string(gpumux.FaultBadInput), Message: err.Error()}}))
	}
	if err := conn.Write(wire.Ready{}); err != nil {
		return err
	}
	p := &process{conn: conn, hello: hello, handler: handler}
	for {
		m, err := p.next()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case wire.Run:
			err = p.run(ctx, m)
		default:
			return io.EOF
		}
		if err != nil {
			return err
		}
	}
}

type process struct {
	conn    *wire.Conn
	hello   wire.Hello
	handler Handler
	// printed is how much was printed by the last answer.
	printed int64
	traced  bool           // by the last run
	queue   []wire.Message // read while a fault waited for its Next
}

func (p *process) next() (m wire.Message, err error) {
	if len(p.queue) == 0 {
		return p.conn.Read()
	}
	m, p.queue = p.queue[0], p.queue[1:]
	return m, nil
}

// run answers the items of a run, one after the other.
func (p *process) run(ctx context.Context, run wire.Run) error {
	if run.Trace != "" {
		os.Setenv("TRACEPARENT", run.Trace)
	} else if p.traced {
		os.Unsetenv("TRACEPARENT")
	}
	p.traced = run.Trace != ""
	for n, item := range run.Items {
		answer := p.answer(context.WithValue(ctx, positionKey{}, &position{p, run.Run, n}), item, run, n)
		if err := p.conn.Write(answer); err != nil {
			return err
		}
		if _, fault := answer.(wire.Fault); fault {
			if err := p.awaitNext(); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitNext follows a fault: no item begins before Next.
func (p *process) awaitNext() error {
	for {
		m, err := p.conn.Read()
		if err != nil {
			return err
		}
		switch m.(type) {
		case wire.Next:
			return nil
		case wire.Run:
			p.queue = append(p.queue, m)
		default:
			return io.EOF
		}
	}
}

// answer tries an item up to run.Attempts times.
func (p *process) answer(ctx context.Context, item json.RawMessage, run wire.Run, n int) wire.Message {
	begin := time.Now()
	for attempt := 1; ; attempt++ {
		value, err := call(ctx, p.handler, item)
		if err == nil && len(value)+maxHeader > wire.MaxFrame {
			err = fmt.Errorf("result has %d bytes, the wire carries at most %d; write it to a file and return its path", len(value), wire.MaxFrame)
		}
		if err != nil && attempt < run.Attempts && ctx.Err() == nil {
			continue
		}
		busy, out := time.Since(begin).Seconds(), p.out()
		f := wire.Fault{Run: run.Run, N: n, Busy: busy, Out: out}
		r := wire.Results{Run: run.Run, N: n, Values: []json.RawMessage{value}, Busy: []float64{busy}, Out: out}
		if attempt > 1 {
			f.Attempts, r.Attempts = attempt, []int{attempt}
		}
		if err != nil {
			f.Raised = raised(err)
			return f
		}
		return r
	}
}

// out is the size of standard output, so that the worker can cut it per item, or 0 where
// that is no file or has not grown.
func (p *process) out() int64 {
	var info syscall.Stat_t
	if syscall.Fstat(1, &info) != nil || info.Mode&syscall.S_IFMT != syscall.S_IFREG || info.Size == p.printed {
		return 0
	}
	p.printed = info.Size
	return p.printed
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
