package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/gpumux/gpumux"
)

// header is every field that a header may have. Fields that are not known are passed over, so that a later release of the
// same version may add some.
type header struct {
	Type      string          `json:"type"`
	Version   int             `json:"version"`
	Task      string          `json:"task"`
	Target    string          `json:"target"`
	Dir       string          `json:"dir"`
	Own       bool            `json:"own"`
	Slot      string          `json:"slot"`
	Device    string          `json:"device"`
	Memory    int64           `json:"memory"`
	Mode      gpumux.Mode     `json:"mode"`
	PID       int             `json:"pid"`
	Runtime   string          `json:"runtime"`
	Batch     int             `json:"batch"`
	Run       int64           `json:"run"`
	N         int             `json:"n"`
	Sizes     []int           `json:"sizes"`
	Kinds     []Kind          `json:"kinds"`
	Busy      json.RawMessage `json:"busy"`
	Attempts  json.RawMessage `json:"attempts"`
	Out       int64           `json:"out"`
	Peak      int64           `json:"peak"`
	Fault     *Raised         `json:"fault"`
	Value     json.RawMessage `json:"value"`
	Trim      bool            `json:"trim"`
	Hard      bool            `json:"hard"`
	Board     uint64          `json:"board"`
	Wait      bool            `json:"wait"`
	Room      int64           `json:"room"`
	Framework string          `json:"framework"`
	Error     string          `json:"error"`
	Reserved  int64           `json:"reserved"`
	Modules   []string        `json:"modules"`
}

// decode fills h from one line; only the memory of Sizes is used again.
func (h *header) decode(line []byte) error {
	*h = header{Sizes: h.Sizes[:0]}
	return json.Unmarshal(line, h)
}

// split cuts the body into the values that sizes tells.
func (h *header) split(body []byte) ([]json.RawMessage, error) {
	values, rest := make([]json.RawMessage, len(h.Sizes)), body
	for i, size := range h.Sizes {
		if size <= 0 {
			return nil, broken("%s: sizes[%d] is %d; a JSON value has at least one byte", h.Type, i, size)
		}
		if size > len(rest) {
			return nil, broken("%s: the body has %d bytes, sizes[%d] reaches beyond them", h.Type, len(body), i)
		}
		values[i], rest = rest[:size:size], rest[size:]
	}
	if len(rest) > 0 {
		return nil, broken("%s: the body has %d bytes more than sizes tell", h.Type, len(rest))
	}
	return values, nil
}

func (h *header) empty(body []byte) error {
	if len(body) > 0 {
		return broken("%s: has a body of %d bytes; it must have none", h.Type, len(body))
	}
	return nil
}

// position checks the run and position that an answer is about.
func (h *header) position() error {
	if h.Run < 1 || h.N < 0 {
		return broken("%s: run %d, n %d; runs count from 1 and positions from 0", h.Type, h.Run, h.N)
	}
	return nil
}

// measured checks the peak of an answer.
func (h *header) measured() error {
	if h.Peak < 0 {
		return broken("%s: peak is %d bytes", h.Type, h.Peak)
	}
	return nil
}

// optional decodes a field that may be missing.
func optional[T any](h *header, field string, data json.RawMessage) (value T, err error) {
	if len(data) == 0 {
		return value, nil
	}
	if err := json.Unmarshal(data, &value); err != nil {
		return value, &ProtocolError{Problem: h.Type + ": " + field, Err: err}
	}
	return value, nil
}

func fromWorker(h *header, body []byte) (Message, error) {
	switch h.Type {
	case "hello":
		return Hello{Version: h.Version, Task: h.Task, Target: h.Target, Dir: h.Dir, Own: h.Own, Slot: h.Slot, Device: h.Device,
			Memory: h.Memory, Mode: h.Mode, Board: int64(h.Board), Room: h.Room}, h.empty(body)
	case "run":
		items, err := h.split(body)
		if err != nil {
			return nil, err
		}
		attempts, err := optional[int](h, "attempts", h.Attempts)
		return Run{Run: h.Run, Attempts: attempts, Items: items}, errors.Join(err, h.position())
	case "next":
		return Next{}, h.empty(body)
	case "trim":
		return Trim{Hard: h.Hard}, h.empty(body)
	case "stop":
		return Stop{}, h.empty(body)
	}
	return nil, broken("a worker cannot say %q; it says hello, run, next, trim and stop", h.Type)
}

func fromProcess(h *header, body []byte) (Message, error) {
	switch h.Type {
	case "hello":
		return ProcessHello{Version: h.Version, PID: h.PID, Runtime: h.Runtime}, h.empty(body)
	case "ready":
		if h.Batch < 0 {
			return nil, broken("ready: batch is %d; it must be 0 or more", h.Batch)
		}
		return Ready{Batch: h.Batch, Trim: h.Trim, Modules: h.Modules}, h.empty(body)
	case "results":
		return h.results(body)
	case "posted":
		return Posted{Board: h.Board, Wait: h.Wait}, h.empty(body)
	case "fault":
		return h.fault(body)
	case "progress":
		if len(h.Value) == 0 {
			return nil, broken("progress: has no value")
		}
		return ProgressReport{Run: h.Run, N: h.N, Value: h.Value, Board: h.Board}, errors.Join(h.empty(body), h.position())
	case "trimmed":
		busy, err := optional[float64](h, "busy", h.Busy)
		return Trimmed{Busy: busy}, errors.Join(err, h.empty(body))
	case "cap":
		return Cap{Framework: h.Framework, Error: h.Error, Reserved: h.Reserved, Wait: h.Wait}, h.empty(body)
	}
	return nil, broken("a task process cannot say %q; it says hello, ready, results, posted, fault, progress, trimmed and cap", h.Type)
}

func (h *header) results(body []byte) (Message, error) {
	values, err := h.split(body)
	if err != nil {
		return nil, err
	}
	busy, err := optional[[]float64](h, "busy", h.Busy)
	if err != nil {
		return nil, err
	}
	attempts, err := optional[[]int](h, "attempts", h.Attempts)
	if err != nil {
		return nil, err
	}
	r := Results{Run: h.Run, N: h.N, Values: values, Kinds: h.Kinds, Busy: busy, Attempts: attempts, Out: h.Out, Peak: h.Peak,
		Board: h.Board, Wait: h.Wait}
	return r, errors.Join(h.position(), h.measured(), r.check())
}

func (h *header) fault(body []byte) (Message, error) {
	if h.Fault == nil {
		return nil, broken("fault: says nothing about what was raised")
	}
	attempts, err := optional[int](h, "attempts", h.Attempts)
	if err != nil {
		return nil, err
	}
	busy, err := optional[float64](h, "busy", h.Busy)
	if err != nil {
		return nil, err
	}
	if h.Run < 0 || h.N < 0 {
		return nil, h.position()
	}
	f := Fault{Run: h.Run, N: h.N, Attempts: attempts, Busy: busy, Out: h.Out, Peak: h.Peak, Board: h.Board, Raised: *h.Fault}
	return f, errors.Join(h.measured(), h.empty(body))
}

func (r *Results) check() error {
	if len(r.Values) == 0 {
		return broken("results: has no values")
	}
	if len(r.Busy) != len(r.Values) {
		return broken("results: %d values but %d entries in busy", len(r.Values), len(r.Busy))
	}
	if r.Attempts != nil && len(r.Attempts) != len(r.Values) {
		return broken("results: %d values but %d entries in attempts", len(r.Values), len(r.Attempts))
	}
	if r.Kinds != nil && len(r.Kinds) != len(r.Values) {
		return broken("results: %d values but %d entries in kinds", len(r.Values), len(r.Kinds))
	}
	for i, seconds := range r.Busy {
		if seconds < 0 || math.IsNaN(seconds) || math.IsInf(seconds, 0) {
			return broken("results: busy[%d] is %v seconds", i, seconds)
		}
	}
	return nil
}

// encode appends m's header line to b and returns what follows it. The two messages of every item are written by hand.
func encode(b []byte, m Message) (head []byte, bodies []json.RawMessage, err error) {
	switch m := m.(type) {
	case Run:
		b = append(b, `{"type":"run","run":`...)
		b = strconv.AppendInt(b, m.Run, 10)
		b = appendSizes(b, m.Items)
		b = append(b, `,"attempts":`...)
		b = strconv.AppendInt(b, int64(max(1, m.Attempts)), 10)
		return append(b, "}\n"...), m.Items, whole(m, m.Items)
	case Results:
		if err := m.check(); err != nil {
			return nil, nil, err
		}
		b = append(b, `{"type":"results","run":`...)
		b = strconv.AppendInt(b, m.Run, 10)
		b = append(b, `,"n":`...)
		b = strconv.AppendInt(b, int64(m.N), 10)
		b = appendSizes(b, m.Values)
		b = append(b, `,"busy":`...)
		b = appendList(b, m.Busy, appendSeconds)
		if m.Attempts != nil {
			b = append(b, `,"attempts":`...)
			b = appendList(b, m.Attempts, appendInt)
		}
		if m.Out > 0 {
			b = append(b, `,"out":`...)
			b = strconv.AppendInt(b, m.Out, 10)
		}
		if m.Peak > 0 {
			b = append(b, `,"peak":`...)
			b = strconv.AppendInt(b, m.Peak, 10)
		}
		if m.Board > 0 {
			b = append(b, `,"board":`...)
			b = strconv.AppendUint(b, m.Board, 10)
		}
		if m.Wait {
			b = append(b, `,"wait":true`...)
		}
		if m.Kinds != nil {
			b = append(b, `,"kinds":`...)
			b = appendList(b, m.Kinds, func(b []byte, k Kind) []byte { return appendInt(b, int(k)) })
		}
		return append(b, "}\n"...), m.Values, whole(m, m.Values)
	}
	fields, err := plain(m)
	if err != nil {
		return nil, nil, broken("%s: %v", m.kind(), err)
	}
	b = append(b, `{"type":"`+m.kind()+`"`...)
	if len(fields) > len("{}") {
		b = append(append(b, ','), fields[1:]...)
	} else {
		b = append(b, '}')
	}
	return append(b, '\n'), nil, nil
}

// plain is JSON on one line, without the escapes that are only for web pages.
func plain(m Message) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(m)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func whole(m Message, values []json.RawMessage) error {
	for i, v := range values {
		if len(v) == 0 {
			return broken("%s: value %d is empty; a JSON value has at least one byte", m.kind(), i)
		}
	}
	return nil
}

func appendSizes(b []byte, values []json.RawMessage) []byte {
	b = append(b, `,"sizes":`...)
	return appendList(b, values, func(b []byte, v json.RawMessage) []byte { return appendInt(b, len(v)) })
}

func appendList[T any](b []byte, list []T, one func([]byte, T) []byte) []byte {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, v)
	}
	return append(b, ']')
}

func appendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }
func appendSeconds(b []byte, seconds float64) []byte {
	return strconv.AppendFloat(b, seconds, 'f', 6, 64)
}
