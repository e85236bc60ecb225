package starter

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
)

// faulty is a codec that fails.
type faulty struct{}

func (faulty) Encode([]*common.Payload) ([]*common.Payload, error) {
	return nil, errors.New("out of order")
}
func (faulty) Decode([]*common.Payload) ([]*common.Payload, error) {
	return nil, errors.New("out of order")
}

// A codec that fails does not say that a map is another one.
func TestCodec_ThatFails(t *testing.T) {
	data := codec.Converter(nil, faulty{})
	plain, err := converter.GetDefaultDataConverter().ToPayloads(gpumux.MapInput{Task: "t", Source: "file:///inputs/a.jsonl"})
	require.NoError(t, err)
	one := registry{data: data}.read(&workflow.WorkflowExecutionInfo{Memo: &common.Memo{Fields: map[string]*common.Payload{memoKey: plain.Payloads[0]}}})
	require.ErrorContains(t, one.Unread, "out of order")
	other, err := converter.GetDefaultDataConverter().ToPayload(7)
	require.NoError(t, err)
	one = registry{data: converter.GetDefaultDataConverter()}.read(&workflow.WorkflowExecutionInfo{
		Memo: &common.Memo{Fields: map[string]*common.Payload{memoKey: other}}})
	require.NoError(t, one.Unread, "of another program")
}
