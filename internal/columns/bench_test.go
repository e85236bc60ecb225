package columns_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/columns"
	"github.com/gpumux/gpumux/internal/results"
)

// vectorBytes is a vector of 768 floats of 32 bits.
const vectorBytes = 4 * 768

// vectorLine is what follows the index in a line of results.
func vectorLine() string {
	vector := []byte("\x02f\x04\x01\x00\x00\x03\x00\x00\x00\x00\x00\x00")
	for i := range vectorBytes / 4 {
		vector = binary.LittleEndian.AppendUint32(vector, math.Float32bits(float32(math.Sin(float64(i)))))
	}
	line, _ := results.Append(nil, gpumux.Result{Arrays: vector}) // it is sound
	return strings.TrimPrefix(string(line), `{"index":0`)
}

// BenchmarkWriter writes vectors.
func BenchmarkWriter(b *testing.B) {
	tail := vectorLine()
	for _, format := range []columns.Format{columns.NPY, columns.Parquet, columns.Arrow} {
		b.Run(string(format)[1:], func(b *testing.B) {
			file, err := os.Create(filepath.Join(b.TempDir(), "x"+string(format)))
			require.NoError(b, err)
			defer file.Close()
			to := columns.NewWriter(file, format)
			b.SetBytes(vectorBytes)
			var line []byte
			for i := 0; b.Loop(); i++ {
				line = append(fmt.Appendf(line[:0], `{"index":%d`, i), tail...)
				require.NoError(b, to.Add(line))
			}
			_, err = to.Finish()
			require.NoError(b, err)
		})
	}
}

// BenchmarkItems reads vectors.
func BenchmarkItems(b *testing.B) {
	tail := vectorLine()
	for _, format := range []columns.Format{columns.Parquet, columns.Arrow} {
		b.Run(string(format)[1:], func(b *testing.B) {
			const rows = 2000
			file, err := os.Create(filepath.Join(b.TempDir(), "x"+string(format)))
			require.NoError(b, err)
			to := columns.NewWriter(file, format)
			for i := range rows {
				require.NoError(b, to.Add(append(fmt.Appendf(nil, `{"index":%d`, i), tail...)))
			}
			_, err = to.Finish()
			require.NoError(b, err)
			require.NoError(b, file.Close())
			b.SetBytes(rows * vectorBytes)
			for b.Loop() {
				file, err := os.Open(file.Name())
				require.NoError(b, err)
				info, err := file.Stat()
				require.NoError(b, err)
				lines, err := columns.Items(b.Context(), file, info.Size(), file.Name(), nil)
				require.NoError(b, err)
				_, err = io.Copy(io.Discard, lines)
				require.NoError(b, err)
			}
		})
	}
}
