package columns_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/store/columns"
)

// BenchmarkWriter writes vectors of 768 floats of 32 bits.
func BenchmarkWriter(b *testing.B) {
	data := make([]byte, 4*768)
	for i := range data {
		data[i] = byte(i * 7)
	}
	vector := append([]byte("\x02f\x04\x01\x00\x00\x03\x00\x00\x00\x00\x00\x00"), data...)
	tail := fmt.Sprintf(`,"arrays":"%s"}`, base64.StdEncoding.EncodeToString(vector))
	for _, format := range []columns.Format{columns.NPY, columns.Parquet, columns.Arrow} {
		b.Run(string(format)[1:], func(b *testing.B) {
			file, err := os.Create(filepath.Join(b.TempDir(), "x"+string(format)))
			require.NoError(b, err)
			defer file.Close()
			to := columns.NewWriter(file, format)
			b.SetBytes(int64(len(data)))
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
