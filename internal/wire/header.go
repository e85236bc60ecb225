package wire

import (
	"cmp"
	"encoding/json"

	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/text"
)

// parser reads a message of one type. It ignores unknown fields, so a later release of
// the same version may add some.
type parser func(line, body []byte) (Message, error)

var fromWorker = map[string]parser{
	"hello": plain[Hello], "run": parseRun, "next": plain[Next], "cancel": plain[Cancel], "stop": plain[Stop],
}

var fromProcess = map[string]parser{
	"hello": plain[ProcessHello], "ready": plain[Ready], "results": parseResults, "posted": plain[Posted], "fault": plain[Fault],
	"canceled": plain[Canceled], "progress": plain[ProgressReport], "cap": plain[Cap],
}

func decode(line []byte, to any) error {
	if err := json.Unmarshal(line, to); err != nil {
		return &ProtocolError{Problem: "a header is not the JSON it should be", Err: err}
	}
	return nil
}

func plain[M Message](line, body []byte) (Message, error) {
	var m M
	if err := decode(line, &m); err != nil {
		return nil, err
	}
	if len(body) > 0 {
		return nil, broken("%s: has a body of %d bytes; it must have none", m.kind(), len(body))
	}
	return m, check(m)
}

func parseRun(line, body []byte) (Message, error) {
	var m Run
	err := decode(line, &m)
	if err == nil {
		m.Items, err = split("run", m.Sizes, body)
	}
	m.Sizes = nil
	return m, cmp.Or(err, check(m))
}

func parseResults(line, body []byte) (Message, error) {
	var m Results
	err := decode(line, &m)
	if err == nil {
		m.Values, err = split("results", m.Sizes, body)
	}
	m.Sizes = nil
	return m, cmp.Or(err, check(m))
}

// split cuts the body into the values that sizes tells.
func split(kind string, sizes []int, body []byte) ([]json.RawMessage, error) {
	values, rest := make([]json.RawMessage, len(sizes)), body
	for i, size := range sizes {
		if size <= 0 {
			return nil, broken("%s: sizes[%d] is %d; a JSON value has at least one byte", kind, i, size)
		}
		if size > len(rest) {
			return nil, broken("%s: the body has %d bytes, sizes[%d] reaches beyond them", kind, len(body), i)
		}
		values[i], rest = rest[:size:size], rest[size:]
	}
	if len(rest) > 0 {
		return nil, broken("%s: the body has %d bytes more than sizes tell", kind, len(rest))
	}
	return values, nil
}

// appendHeader appends m's header line to b and returns the body. A header is the JSON of
// its message with the type before it. Run and Results have their values in the body, and
// the sizes of these in the header.
func appendHeader(b []byte, m Message) (head []byte, bodies []json.RawMessage, err error) {
	var fields any = m
	switch m := m.(type) {
	case Run:
		if err := m.check(); err != nil {
			return nil, nil, err
		}
		m.Attempts = max(1, m.Attempts)
		bodies, m.Items, m.Sizes = m.Items, nil, sizes(m.Items)
		fields = m
	case Results:
		if err := m.check(); err != nil {
			return nil, nil, err
		}
		bodies, m.Values, m.Sizes = m.Values, nil, sizes(m.Values)
		fields = m
	}
	for i, v := range bodies {
		if len(v) == 0 {
			return nil, nil, broken("%s: value %d is empty; a JSON value has at least one byte", m.kind(), i)
		}
	}
	line, err := text.Marshal(fields)
	if err != nil {
		return nil, nil, broken("%s: %v", m.kind(), err)
	}
	b = append(append(append(b, `{"type":"`...), m.kind()...), '"')
	if len(line) > len("{}") {
		b = append(b, ',')
	}
	return append(append(b, line[1:]...), '\n'), bodies, nil
}

func sizes(values []json.RawMessage) []int {
	list := make([]int, len(values))
	for i, v := range values {
		list[i] = len(v)
	}
	return list
}

func check(m Message) error {
	switch m := m.(type) {
	case Run:
		return cmp.Or(checkPosition(m, m.Run, 0), m.check())
	case Ready:
		if m.Batch < 0 || m.Concurrent < 0 || m.Batch > 0 && m.Concurrent > 0 {
			return broken("ready: batch is %d and concurrent %d; one of them may be more than 0", m.Batch, m.Concurrent)
		}
	case Results:
		return cmp.Or(checkPosition(m, m.Run, m.N), m.check())
	case Fault:
		if m.Raised.Class == "" && m.Raised.Message == "" {
			return broken("fault: says nothing about what was raised")
		}
		return checkPosition(m, max(m.Run, 1), m.N)
	case ProgressReport:
		if len(m.Value) == 0 {
			return broken("progress: has no value")
		}
		return checkPosition(m, max(m.Run, 1), m.N)
	}
	return nil
}

func (r *Run) check() error {
	if cmp.Or(len(r.Kinds), len(r.Items)) != len(r.Items) {
		return broken("run: %d items but %d entries in kinds", len(r.Items), len(r.Kinds))
	}
	for i, kind := range r.Kinds {
		if kind != JSON && kind != Array && kind != Mixed {
			return broken("run: kinds[%d] is %d; items are of kind %d, %d or %d", i, kind, JSON, Array, Mixed)
		}
	}
	return nil
}

func checkPosition(m Message, run int64, n int) error {
	if run < 1 || n < 0 {
		return broken("%s: run %d, n %d; runs count from 1 and positions from 0", m.kind(), run, n)
	}
	return nil
}

func (r *Results) check() error {
	n := len(r.Values)
	if n == 0 {
		return broken("results: has no values")
	}
	if len(r.Busy) != n || cmp.Or(len(r.Attempts), n) != n || cmp.Or(len(r.Kinds), n) != n {
		return broken("results: %d values but %d entries in busy, %d entries in attempts, %d entries in kinds", n, len(r.Busy), len(r.Attempts),
			len(r.Kinds))
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
		if seconds < 0 {
			return broken("results: busy[%d] is %v seconds", i, seconds)
		}
	}
	return nil
}
