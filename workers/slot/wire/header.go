package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
)

// header is every field that a header may have. It ignores others, so a later release of the same version may add some.
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
	Board     uint64          `json:"board"`
	Wait      bool            `json:"wait"`
	Room      int64           `json:"room"`
	Framework string          `json:"framework"`
	Error     string          `json:"error"`
	Reserved  int64           `json:"reserved"`
	Modules   []string        `json:"modules"`
	Lease     string          `json:"lease"`
	Host      string          `json:"host"`
	Rebuilt   bool            `json:"rebuilt"`
	Count     int             `json:"count"`
	Bytes     int64           `json:"bytes"`
	Folder    string          `json:"folder"`
	Files     []string        `json:"files"`

	Allocators *Allocators `json:"allocators"`
}

// decode fills h from one line and reuses the memory of Sizes.
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

// checkPosition checks the run and position of an answer.
func (h *header) checkPosition() error {
	if h.Run < 1 || h.N < 0 {
		return broken("%s: run %d, n %d; runs count from 1 and positions from 0", h.Type, h.Run, h.N)
	}
	return nil
}

// checkMemory checks the sizes in an answer.
func (h *header) checkMemory() error {
	if h.Peak < 0 {
		return broken("%s: peak is %d bytes", h.Type, h.Peak)
	}
	if a := h.Allocators; a != nil && (a.Live < 0 || a.Spare < 0 || a.Reserved < a.Live || a.Reserved-a.Live < a.Spare) {
		return broken("%s: allocators have %d live bytes and %d spare ones of %d; there cannot be more than all", h.Type, a.Live, a.Spare,
			a.Reserved)
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
			Memory: h.Memory, Mode: h.Mode, Board: int64(h.Board), Room: h.Room, Lease: h.Lease, Host: h.Host,
			Rebuilt: h.Rebuilt}, h.empty(body)
	case "run":
		items, err1 := h.split(body)
		attempts, err2 := optional[int](h, "attempts", h.Attempts)
		return Run{Run: h.Run, Attempts: attempts, Items: items, Target: h.Target, Task: h.Task, Folder: h.Folder},
			cmp.Or(err1, err2, h.checkPosition())
	case "next":
		return Next{}, h.empty(body)
	case "trim":
		return Trim{}, h.empty(body)
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
		return Posted{Board: h.Board, Wait: h.Wait, Allocators: h.Allocators}, cmp.Or(h.empty(body), h.checkMemory())
	case "fault":
		return h.fault(body)
	case "progress":
		if len(h.Value) == 0 {
			return nil, broken("progress: has no value")
		}
		return ProgressReport{Run: h.Run, N: h.N, Value: h.Value, Board: h.Board}, cmp.Or(h.empty(body), h.checkPosition())
	case "kept":
		if h.Count < 0 || h.Bytes < 0 {
			return nil, broken("kept: %d residents of %d bytes", h.Count, h.Bytes)
		}
		return Kept{Count: h.Count, Bytes: h.Bytes}, h.empty(body)
	case "trimmed":
		busy, err := optional[float64](h, "busy", h.Busy)
		return Trimmed{Busy: busy, Allocators: h.Allocators}, cmp.Or(err, h.empty(body), h.checkMemory())
	case "cap":
		return Cap{Framework: h.Framework, Error: h.Error, Reserved: h.Reserved, Wait: h.Wait}, h.empty(body)
	}
	return nil, broken("a task process cannot say %q; it says hello, ready, results, posted, fault, progress, kept, trimmed and cap", h.Type)
}

func (h *header) results(body []byte) (Message, error) {
	values, err1 := h.split(body)
	busy, err2 := optional[[]float64](h, "busy", h.Busy)
	attempts, err3 := optional[[]int](h, "attempts", h.Attempts)
	r := Results{Run: h.Run, N: h.N, Values: values, Kinds: h.Kinds, Busy: busy, Attempts: attempts, Out: h.Out, Peak: h.Peak,
		Board: h.Board, Wait: h.Wait, Allocators: h.Allocators, Files: h.Files}
	return r, cmp.Or(err1, err2, err3, h.checkPosition(), h.checkMemory(), r.check())
}

func (h *header) fault(body []byte) (Message, error) {
	if h.Fault == nil {
		return nil, broken("fault: says nothing about what was raised")
	}
	attempts, err1 := optional[int](h, "attempts", h.Attempts)
	busy, err2 := optional[float64](h, "busy", h.Busy)
	if h.Run < 0 || h.N < 0 {
		return nil, h.checkPosition()
	}
	f := Fault{Run: h.Run, N: h.N, Attempts: attempts, Busy: busy, Out: h.Out, Peak: h.Peak, Board: h.Board, Raised: *h.Fault,
		Allocators: h.Allocators}
	return f, cmp.Or(err1, err2, h.checkMemory(), h.empty(body))
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
	if len(r.Files) > 0 && len(r.Values) != 1 {
		return broken("results: files of %d items; an item with files is answered alone", len(r.Values))
	}
	if len(r.Files) > names.MaxFiles {
		return broken("results: %d files of one item; at most %d are allowed", len(r.Files), names.MaxFiles)
	}
	for _, name := range r.Files {
		if err := names.File(name); err != nil {
			return broken("results: %v", err)
		}
	}
	for i, seconds := range r.Busy {
		if seconds < 0 || math.IsNaN(seconds) || math.IsInf(seconds, 0) {
			return broken("results: busy[%d] is %v seconds", i, seconds)
		}
	}
	return nil
}

// encode appends m's header line to b and returns the body. It writes the two messages of every item by hand.
func encode(b []byte, m Message) (head []byte, bodies []json.RawMessage, err error) {
	switch m := m.(type) {
	case Run:
		b, err = m.encode(b)
		return append(b, "}\n"...), m.Items, cmp.Or(err, checkValues(m, m.Items))
	case Results:
		b, err = m.encode(b)
		return append(b, "}\n"...), m.Values, cmp.Or(err, checkValues(m, m.Values))
	}
	fields, err := marshal(m)
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

func (m *Run) encode(b []byte) (head []byte, err error) {
	b = append(b, `{"type":"run"`...)
	b = appendField(b, "run", m.Run)
	b = appendSizes(b, m.Items)
	b = appendField(b, "attempts", max(1, m.Attempts))
	if m.Target != "" {
		if b, err = appendJSON(b, "target", m.Target); err == nil {
			b, err = appendJSON(b, "task", m.Task)
		}
	}
	if m.Folder != "" && err == nil {
		b, err = appendJSON(b, "folder", m.Folder)
	}
	return b, err
}

func (m *Results) encode(b []byte) (head []byte, err error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	b = append(b, `{"type":"results"`...)
	b = appendField(b, "run", m.Run)
	b = appendField(b, "n", m.N)
	b = appendSizes(b, m.Values)
	b = appendList(b, "busy", m.Busy, appendSeconds)
	if m.Attempts != nil {
		b = appendList(b, "attempts", m.Attempts, appendInt)
	}
	if m.Out > 0 {
		b = appendField(b, "out", m.Out)
	}
	if m.Peak > 0 {
		b = appendField(b, "peak", m.Peak)
	}
	if m.Board > 0 {
		b = appendField(b, "board", m.Board)
	}
	if m.Wait {
		b = append(b, `,"wait":true`...)
	}
	if m.Kinds != nil {
		b = appendList(b, "kinds", m.Kinds, appendInt)
	}
	if a := m.Allocators; a != nil {
		b = fmt.Appendf(b, `,"allocators":{"live":%d,"reserved":%d,"spare":%d}`, a.Live, a.Reserved, a.Spare)
	}
	if m.Files != nil {
		b, err = appendJSON(b, "files", m.Files)
	}
	return b, err
}

// marshal is JSON on one line, without the escapes for web pages.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func checkValues(m Message, values []json.RawMessage) error {
	for i, v := range values {
		if len(v) == 0 {
			return broken("%s: value %d is empty; a JSON value has at least one byte", m.kind(), i)
		}
	}
	return nil
}

func appendName(b []byte, name string) []byte {
	return append(append(append(b, `,"`...), name...), `":`...)
}

// appendJSON adds a field as marshal writes its value.
func appendJSON(b []byte, name string, v any) ([]byte, error) {
	text, err := marshal(v)
	if err != nil {
		return b, broken("%s: %v", name, err)
	}
	return append(appendName(b, name), text...), nil
}

func appendField[T ~int | ~int64 | ~uint64](b []byte, name string, n T) []byte {
	return appendInt(appendName(b, name), n)
}

func appendSizes(b []byte, values []json.RawMessage) []byte {
	return appendList(b, "sizes", values, func(b []byte, v json.RawMessage) []byte { return appendInt(b, len(v)) })
}

func appendList[T any](b []byte, name string, list []T, one func([]byte, T) []byte) []byte {
	b = append(appendName(b, name), '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, v)
	}
	return append(b, ']')
}

func appendInt[T ~int | ~int64 | ~uint64](b []byte, n T) []byte {
	return strconv.AppendInt(b, int64(n), 10)
}

func appendSeconds(b []byte, seconds float64) []byte {
	return strconv.AppendFloat(b, seconds, 'f', 6, 64)
}
