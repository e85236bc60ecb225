package columns

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"

	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/results"
)

// appendCell adds a value of an Arrow array as JSON.
func appendCell(b []byte, of arrow.Array, i int) ([]byte, error) {
	if of.IsNull(i) {
		return append(b, "null"...), nil
	}
	switch of := of.(type) {
	case *array.Float32:
		return arrays.AppendFloat(b, float64(of.Value(i)), 32), nil
	case *array.Float64:
		return arrays.AppendFloat(b, of.Value(i), 64), nil
	case *array.Int64:
		return strconv.AppendInt(b, of.Value(i), 10), nil
	case *array.Float16:
		return append(b, arrays.HalfText(of.Value(i).Uint16())...), nil
	case interface{ Value(int) []byte }:
		return appendBytes(b, of.Value(i)), nil
	case *array.Dictionary:
		return appendCell(b, of.Dictionary(), of.GetValueIndex(i))
	case *array.RunEndEncoded:
		return appendCell(b, of.Values(), of.GetPhysicalIndex(i))
	case *extensions.UUIDArray:
		return appendText(b, of.ValueStr(i)), nil
	case array.ExtensionArray:
		return appendCell(b, of.Storage(), i)
	case *array.Struct:
		return appendStruct(b, of, i)
	case *array.Map:
		// As a list of its pairs where its keys may not be text.
	case array.ListLike:
		from, end := of.ValueOffsets(i)
		b = append(b, '[')
		var err error
		for at := from; at < end && err == nil; at++ {
			if at > from {
				b = append(b, ',')
			}
			b, err = appendCell(b, of.ListValues(), int(at))
		}
		return append(b, ']'), err
	case array.StringLike:
		return appendText(b, of.Value(i)), nil
	case arrow.TypedArray[arrow.Timestamp]:
		t := of.(arrow.Array).DataType().(*arrow.TimestampType)
		b = of.Value(i).ToTime(t.Unit).AppendFormat(append(b, '"'), "2006-01-02T15:04:05.999999999")
		if t.TimeZone != "" {
			b = append(b, 'Z')
		}
		return append(b, '"'), nil
	case arrow.TypedArray[arrow.Duration]:
		return strconv.AppendInt(b, int64(of.Value(i)), 10), nil
	}
	if t, ok := of.DataType().(arrow.DecimalType); ok { // all digits of its scale
		number := of.(interface{ ValueAsAny(int) any }).ValueAsAny(i).(interface{ ToString(int32) string })
		return append(append(append(b, '"'), number.ToString(t.GetScale())...), '"'), nil
	}
	text, err := json.Marshal(of.GetOneForMarshal(i))
	return append(b, text...), err
}

func appendStruct(b []byte, of *array.Struct, i int) (_ []byte, err error) {
	b = append(b, '{')
	for n := range of.NumField() {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, of.DataType().(*arrow.StructType).Field(n).Name), ':')
		if b, err = appendCell(b, of.Field(n), i); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

func appendBytes(b, data []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), data), '"')
}

// appendText adds a string. Bytes that are not UTF-8 are base64, as bytes are.
func appendText(b []byte, text string) []byte {
	if !utf8.ValidString(text) {
		return appendBytes(b, []byte(text))
	}
	return results.AppendString(b, text)
}
