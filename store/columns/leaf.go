package columns

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/gpumux/gpumux/internal/arrays"
)

// textOf is how a leaf's values become JSON.
func textOf(t parquet.Type) func(b []byte, v parquet.Value) []byte {
	if logical := t.LogicalType(); logical != nil {
		if text := textOfLogical(logical.Value); text != nil {
			return text
		}
	}
	return func(b []byte, v parquet.Value) []byte {
		switch v.Kind() {
		case parquet.Boolean:
			return strconv.AppendBool(b, v.Boolean())
		case parquet.Int32:
			return strconv.AppendInt(b, int64(v.Int32()), 10)
		case parquet.Int64:
			return strconv.AppendInt(b, v.Int64(), 10)
		case parquet.Int96:
			// Times of Spark and Impala: the nanoseconds of a Julian day.
			const julian1970 = 2440588
			at, day := v.Int96(), 24*int64(time.Hour/time.Second)
			return appendTime(b, time.Unix((int64(at[2])-julian1970)*day, int64(at[0])|int64(at[1])<<32), time.RFC3339Nano)
		case parquet.Float:
			return arrays.AppendSingle(b, math.Float32bits(v.Float()))
		case parquet.Double:
			return arrays.AppendFloat(b, v.Double(), 64)
		}
		return appendBytes(b, v.ByteArray())
	}
}

// textOfLogical is nil for types that are no more than their physical one.
func textOfLogical(t format.LogicalTypeValue) func(b []byte, v parquet.Value) []byte {
	switch t := t.(type) {
	case *format.StringType, *format.EnumType:
		return func(b []byte, v parquet.Value) []byte { return appendText(b, string(v.ByteArray())) }
	case *format.JsonType:
		return func(b []byte, v parquet.Value) []byte {
			if json.Valid(v.ByteArray()) {
				return append(b, v.ByteArray()...)
			}
			return appendText(b, string(v.ByteArray()))
		}
	case *format.UUIDType:
		return func(b []byte, v parquet.Value) []byte { return appendText(b, v.String()) }
	case *format.IntType:
		if !t.IsSigned {
			return func(b []byte, v parquet.Value) []byte {
				if v.Kind() == parquet.Int32 {
					return strconv.AppendUint(b, uint64(v.Uint32()), 10)
				}
				return strconv.AppendUint(b, v.Uint64(), 10)
			}
		}
	case *format.DateType:
		return func(b []byte, v parquet.Value) []byte {
			return appendTime(b, time.Unix(0, 0).UTC().AddDate(0, 0, int(v.Int32())), time.DateOnly)
		}
	case *format.TimestampType:
		layout := "2006-01-02T15:04:05.999999999"
		if t.IsAdjustedToUTC {
			layout = time.RFC3339Nano
		}
		second := int64(time.Second / t.Unit.Value.Duration())
		return func(b []byte, v parquet.Value) []byte {
			at := v.Int64()
			return appendTime(b, time.Unix(at/second, at%second*int64(time.Second)/second), layout)
		}
	case *format.TimeType:
		unit := t.Unit.Value.Duration()
		return func(b []byte, v parquet.Value) []byte {
			return appendTime(b, time.Unix(0, integer(v)*int64(unit)), "15:04:05.999999999")
		}
	case *format.DecimalType:
		return func(b []byte, v parquet.Value) []byte { return appendDecimal(b, v, int(t.Scale)) }
	}
	return nil
}

func halfText(b []byte, v parquet.Value) []byte {
	return append(b, arrays.HalfText(binary.LittleEndian.Uint16(v.ByteArray()))...)
}

func appendTime(b []byte, at time.Time, layout string) []byte {
	return append(at.UTC().AppendFormat(append(b, '"'), layout), '"')
}

// integer is a value of 32 or 64 bits.
func integer(v parquet.Value) int64 {
	if v.Kind() == parquet.Int32 {
		return int64(v.Int32())
	}
	return v.Int64()
}

// appendDecimal adds a decimal number as a string, with all its digits.
func appendDecimal(b []byte, v parquet.Value, scale int) []byte {
	x := new(big.Int)
	if v.Kind() == parquet.Int32 || v.Kind() == parquet.Int64 {
		x.SetInt64(integer(v))
	} else if data := v.ByteArray(); len(data) > 0 {
		x.SetBytes(data)
		if data[0] >= 0x80 {
			x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(data))))
		}
	}
	digits := []byte(new(big.Int).Abs(x).String())
	for len(digits) <= scale {
		digits = slices.Insert(digits, 0, '0')
	}
	b = append(b, '"')
	if x.Sign() < 0 {
		b = append(b, '-')
	}
	b = append(b, digits[:len(digits)-scale]...)
	if scale > 0 {
		b = append(append(b, '.'), digits[len(digits)-scale:]...)
	}
	return append(b, '"')
}
