package cli

import (
	"fmt"

	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

// prose is an encoder for people. A fault says in words what its fields repeat, so it
// goes without them.
type prose struct {
	zapcore.Encoder
	bare zapcore.Encoder
}

// Clone is for a logger with fields of its own.
func (p prose) Clone() zapcore.Encoder { return prose{p.Encoder.Clone(), p.bare} }

// EncodeEntry writes a line.
func (p prose) EncodeEntry(e zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	told := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(told)
	}
	fault, failed := told.Fields["fault"]
	if !failed {
		return p.Encoder.EncodeEntry(e, fields)
	}
	if of, known := told.Fields["map"]; known {
		e.Message += fmt.Sprintf(": map %v", of)
	}
	if index, known := told.Fields["index"]; known {
		e.Message += fmt.Sprintf(", item %v = %v", index, told.Fields["item"])
	}
	e.Message += fmt.Sprintf(": %v", fault)
	return p.bare.Clone().EncodeEntry(e, nil)
}
