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

var parsers = map[string]parser{
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

// parseResults cuts the body into the values that sizes tell.
func parseResults(line, body []byte) (Message, error) {
	var m Results
	if err := decode(line, &m); err != nil {
		return nil, err
	}
	m.Values = make([]json.RawMessage, 0, len(m.Sizes))
	rest := body
	for i, size := range m.Sizes {
		if size <= 0 {
			return nil, broken("results: sizes[%d] is %d; a JSON value has at least one byte", i, size)
		}
		if size > len(rest) {
			return nil, broken("results: the body has %d bytes, sizes[%d] reaches beyond them", len(body), i)
		}
		m.Values, rest = append(m.Values, rest[:size:size]), rest[size:]
	}
	if len(rest) > 0 {
		return nil, broken("results: the body has %d bytes more than sizes tell", len(rest))
	}
	m.Sizes = nil
	return m, check(m)
}

// appendHeader appends m's header line to b and returns the body. A header is the JSON of
// its message with the type before it. A Run has its items in the body, and the sizes of
// these in the header.
func appendHeader(b []byte, m Message) (head []byte, items []json.RawMessage, err error) {
	if run, ok := m.(Run); ok {
		if err := run.check(); err != nil {
			return nil, nil, err
		}
		run.Attempts = max(1, run.Attempts)
		items, run.Items, run.Sizes = run.Items, nil, make([]int, len(run.Items))
		for i, item := range items {
			run.Sizes[i] = len(item)
		}
		m = run
	}
	line, err := text.Marshal(m)
	if err != nil {
		return nil, nil, broken("%s: %v", m.kind(), err)
	}
	b = append(append(append(b, `{"type":"`...), m.kind()...), '"')
	if len(line) > len("{}") {
		b = append(b, ',')
	}
	return append(append(b, line[1:]...), '\n'), items, nil
}

func check(m Message) error {
	switch m := m.(type) {
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
	for i, item := range r.Items {
		if len(item) == 0 {
			return broken("run: item %d is empty; a JSON value has at least one byte", i)
		}
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
