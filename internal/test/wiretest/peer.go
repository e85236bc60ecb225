package wiretest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/gpumux/gpumux/internal/wire"
)

// A task process inherits its end of the wire and its board under these numbers.
const Descriptor, BoardDescriptor = 3, 4

// Peer is the process's end of a wire. It takes the worker at its word.
type Peer struct{ Stream io.ReadWriter }

// Read is the next message of the worker: a Hello, Run, Next, Cancel or Stop.
func (p Peer) Read() (wire.Message, error) {
	var size [4]byte
	if _, err := io.ReadFull(p.Stream, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(p.Stream, frame); err != nil {
		return nil, err
	}
	line, body, _ := bytes.Cut(frame, []byte{'\n'})
	var head struct{ Type string }
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, err
	}
	switch head.Type {
	case "hello":
		return headed[wire.Hello](line)
	case "run":
		run, err := headed[wire.Run](line)
		for _, size := range run.Sizes {
			run.Items, body = append(run.Items, body[:size:size]), body[size:]
		}
		return run, err
	case "next":
		return wire.Next{}, nil
	case "cancel":
		return headed[wire.Cancel](line)
	}
	return wire.Stop{}, nil
}

func headed[M any](line []byte) (m M, err error) { return m, json.Unmarshal(line, &m) }

// Say sends a header, of which the type is one field, and a body.
func (p Peer) Say(header, body string) error {
	text := header + "\n" + body
	_, err := p.Stream.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// say sends a message that has no body.
func (p Peer) say(kind string, m wire.Message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	header := `{"type":"` + kind + `"`
	if len(line) > len("{}") {
		header += ","
	}
	return p.Say(header+string(line[1:]), "")
}

// Serve is the other side, a task process in Go that keeps to docs/wire.md without the
// board. It returns nil when the worker says stop or is gone.
func Serve(answer func(item json.RawMessage) (json.RawMessage, error)) error {
	signal.Ignore(syscall.SIGINT)
	file := os.NewFile(Descriptor, "wire")
	socket, err := net.FileConn(file)
	if err != nil {
		return err
	}
	file.Close()
	conn := Peer{socket}
	if err := conn.say("hello", wire.ProcessHello{Version: wire.Version, PID: os.Getpid(), Runtime: runtime.Version()}); err != nil {
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
				syscall.Close(BoardDescriptor)
			}
			err = conn.say("ready", wire.Ready{})
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
			stopped, err = conn.answer(runs[0], n, answer)
			n++
		}
		if err != nil {
			return err
		}
	}
}

// answer answers an item. It stops after a fault.
func (p Peer) answer(run wire.Run, n int, answer func(json.RawMessage) (json.RawMessage, error)) (stopped bool, err error) {
	for attempt := 1; ; attempt++ {
		value, err := answer(run.Items[n])
		if err == nil {
			header := fmt.Sprintf(`{"type":"results","run":%d,"n":%d,"sizes":[%d],"busy":[0],"attempts":[%d]}`, run.Run, n, len(value), attempt)
			return false, p.Say(header, string(value))
		}
		if attempt >= run.Attempts {
			return true, p.say("fault", wire.Fault{Run: run.Run, N: n, Attempts: attempt, Raised: wire.Raised{Class: "error", Message: err.Error()}})
		}
	}
}
