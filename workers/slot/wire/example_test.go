package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/gpumux/gpumux/workers/slot/wire"
)

// The main of a task program in Go: the worker starts it, names a handler and sends items.
func ExampleServe() {
	type point struct{ X, Y float64 }
	square := func(ctx context.Context, p point) (float64, error) {
		if p.X < 0 {
			return 0, fmt.Errorf("x is %g", p.X) // the item's fault; the next item runs
		}
		return p.X*p.X + p.Y*p.Y, wire.Progress(ctx, "nearly there")
	}
	err := wire.Serve(context.Background(), map[string]wire.Handler{"square": wire.Func(square)})
	if err != nil {
		log.Fatal(err)
	}
}

// A handler takes JSON and makes JSON; Func makes one of a function on Go values, which a test calls without a worker.
func ExampleFunc() {
	double := wire.Func(func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	value, err := double(context.Background(), json.RawMessage(`21`))
	fmt.Println(string(value), err)
	_, err = double(context.Background(), json.RawMessage(`"x"`))
	fmt.Println(err != nil)
	// Output:
	// 42 <nil>
	// true
}

// Outside of a slot a task can be run by hand.
func ExampleSlot() {
	task := func(ctx context.Context, text string) (string, error) {
		if hello, ok := wire.Slot(ctx); ok {
			return text + " on " + hello.Device, nil
		}
		return text + " by hand", nil
	}
	fmt.Println(task(context.Background(), "run"))
	// Output:
	// run by hand <nil>
}

// Both ends of the wire, for a task program in Go that has a loop of its own.
func ExampleNewProcess() {
	near, far := net.Pipe()
	go func() { // the task process
		c := wire.NewProcess(far)
		defer c.Close()
		for {
			m, err := c.Read()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				log.Fatal(err)
			}
			switch m := m.(type) {
			case wire.Hello:
				err = c.Write(wire.ProcessHello{Version: wire.Version, PID: 7, Runtime: "go"})
				if err == nil {
					err = c.Write(wire.Ready{})
				}
			case wire.Run:
				for n, item := range m.Items {
					err = c.Write(wire.Results{Run: m.Run, N: n, Values: []json.RawMessage{item}, Busy: []float64{0.001}})
				}
			case wire.Stop:
				return
			}
			if err != nil {
				log.Fatal(err)
			}
		}
	}()

	worker := wire.NewWorker(near)
	defer worker.Close()
	say := func(m wire.Message) {
		if err := worker.Write(m); err != nil {
			log.Fatal(err)
		}
	}
	hear := func() {
		m, err := worker.Read()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%T\n", m)
	}
	say(wire.Hello{Version: wire.Version, Task: "echo", Target: "echo", Slot: "cpu/1", Device: "CPU", Mode: "persistent"})
	hear()
	hear()
	say(wire.Run{Run: 1, Items: []json.RawMessage{[]byte("1"), []byte("2")}})
	hear()
	hear()
	say(wire.Stop{})
	// Output:
	// wire.ProcessHello
	// wire.Ready
	// wire.Results
	// wire.Results
}

// Not all that Go's decoder takes is JSON that every reader takes.
func ExampleCheck() {
	text := []byte(`"half a pair: \ud83d"`)
	fmt.Println(json.Valid(text), wire.Check(text) == nil)
	fmt.Println(wire.Check([]byte(`"a whole one: \ud83d\ude80"`)) == nil)
	// Output:
	// true false
	// true
}

// Bytes of a task travel as they are and become a string of base64 in the results.
func ExampleKind_Text() {
	text, err := wire.Bytes.Text([]byte("hello"))
	fmt.Println(string(text), err)
	// Output:
	// "aGVsbG8=" <nil>
}
