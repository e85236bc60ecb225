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
	out := openOutput()
	defer out.close()
	measured := peaks{told: hello.Device == "CPU"}
	var ahead []Message
	for {
		var m Message
		if len(ahead) > 0 {
			m, ahead = ahead[0], ahead[1:]
		} else if m, err = conn.Read(); err != nil {
			return err
		}
		if _, ok := m.(Trim); ok {
			begin := time.Now()
			debug.FreeOSMemory()
			if err := conn.Write(Trimmed{Busy: time.Since(begin).Seconds()}); err != nil {
				return err
			}
			continue
		}
		run, ok := m.(Run)
		if !ok {
			return nil
		}
		for n, item := range run.Items {
			at := &running{conn: conn, hello: hello, run: run.Run, n: n}
			began := time.Now()
			answer := at.item(context.WithValue(ctx, runningKey{}, at), handler, item, max(1, run.Attempts))
			answer = note(answer, out.grown(), measured.of(began))
			if err := conn.Write(answer); err != nil {
				return err
			}
			// After a fault the worker may end this process; until it says otherwise no item begins.
			for _, wait := answer.(Fault); wait; {
				m, err := conn.Read()
				if err != nil {
					return err
				}
				switch m.(type) {
				case Next:
					wait = false
				case Run, Trim:
					ahead = append(ahead, m)
				default:
					return nil
				}
			}
		}
	}
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
