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

func appendCell(b []byte, column arrow.Array, i int) ([]byte, error) {
	if column.IsNull(i) {
		return append(b, "null"...), nil
	}
	switch column := column.(type) {
	case *array.Float32:
		return arrays.AppendFloat(b, float64(column.Value(i)), 32), nil
	case *array.Float64:
		return arrays.AppendFloat(b, column.Value(i), 64), nil
	case *array.Int64:
		return strconv.AppendInt(b, column.Value(i), 10), nil
	case *array.Float16:
		return append(b, arrays.HalfText(column.Value(i).Uint16())...), nil
	case interface{ Value(int) []byte }:
		return appendBytes(b, column.Value(i)), nil
	case *extensions.UUIDArray:
		return appendText(b, column.ValueStr(i)), nil
	case *array.Struct:
		return appendStruct(b, column, i)
	case *array.Map:
		// As a list of its pairs where its keys may not be text.
	case array.ListLike:
		from, end := column.ValueOffsets(i)
		b = append(b, '[')
		var err error
		for at := from; at < end && err == nil; at++ {
			if at > from {
				b = append(b, ',')
			}
			b, err = appendCell(b, column.ListValues(), int(at))
		}
		return append(b, ']'), err
	case array.StringLike:
		return appendText(b, column.Value(i)), nil
	case arrow.TypedArray[arrow.Timestamp]:
		t := column.(arrow.Array).DataType().(*arrow.TimestampType)
		b = column.Value(i).ToTime(t.Unit).AppendFormat(append(b, '"'), "2006-01-02T15:04:05.999999999")
		if t.TimeZone != "" {
			b = append(b, 'Z')
		}
		return append(b, '"'), nil
	}
	if t, ok := column.DataType().(arrow.DecimalType); ok { // all digits of its scale
		number := column.(interface{ ValueAsAny(int) any }).ValueAsAny(i).(interface{ ToString(int32) string })
		return append(append(append(b, '"'), number.ToString(t.GetScale())...), '"'), nil
	}
	text, err := json.Marshal(column.GetOneForMarshal(i))
	return append(b, text...), err
}

func appendStruct(b []byte, column *array.Struct, i int) (_ []byte, err error) {
	b = append(b, '{')
	for n := range column.NumField() {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, column.DataType().(*arrow.StructType).Field(n).Name), ':')
		if b, err = appendCell(b, column.Field(n), i); err != nil {
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
