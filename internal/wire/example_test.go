package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/gpumux/gpumux/internal/wire"
)

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

// Bytes of a task travel as they are and become a string of base64 in the results.
func ExampleKind_Text() {
	text, err := wire.Bytes.Text([]byte("hello"))
	fmt.Println(string(text), err)
	// Output:
	// "aGVsbG8=" <nil>
}
