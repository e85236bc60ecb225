package wiretest

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/gpumux/gpumux/internal/wire"
)

// Serve is the other side, a task process in Go that keeps to docs/wire.md without the
// board. It returns nil when the worker says stop or is gone.
func Serve(answer func(item json.RawMessage) (json.RawMessage, error)) error {
	signal.Ignore(syscall.SIGINT)
	file := os.NewFile(wire.Descriptor, "wire")
	socket, err := net.FileConn(file)
	if err != nil {
		return err
	}
	file.Close()
	conn := wire.NewProcess(socket)
	if err := conn.Write(wire.ProcessHello{Version: wire.Version, PID: os.Getpid(), Runtime: runtime.Version()}); err != nil {
		return err
	}
	var runs []wire.Run // not yet answered
	for n, stopped := 0, false; ; {
		m, err := conn.Read()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		switch m := m.(type) {
		case wire.Hello:
			if m.Board > 0 {
				syscall.Close(wire.BoardDescriptor)
			}
			err = conn.Write(wire.Ready{})
		case wire.Run:
			runs = append(runs, m)
		case wire.Next:
			stopped = false
		default:
			return nil
		}
		for err == nil && !stopped && len(runs) > 0 {
			if n == len(runs[0].Items) {
				n, runs = 0, runs[1:]
				continue
			}
			reply := answered(runs[0], n, answer)
			_, stopped = reply.(wire.Fault)
			err = conn.Write(reply)
			n++
		}
		if err != nil {
			return err
		}
	}
}

func answered(run wire.Run, n int, answer func(json.RawMessage) (json.RawMessage, error)) wire.Message {
	for attempt := 1; ; attempt++ {
		value, err := answer(run.Items[n])
		if err == nil {
			return wire.Results{Run: run.Run, N: n, Values: []json.RawMessage{value}, Busy: []float64{0}, Attempts: []int{attempt}}
		}
		if attempt >= run.Attempts {
			return wire.Fault{Run: run.Run, N: n, Attempts: attempt, Raised: wire.Raised{Class: "error", Message: err.Error()}}
		}
	}
}
