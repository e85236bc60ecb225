package results

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnbroken_IsWhatItWas(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	for size := range 1100 {
		for _, breaks := range []int{0, 2, 251, 254} { // one byte in so many is a break
			data := bytes.Repeat([]byte{'x'}, size)
			for i := range data {
				if breaks > 0 && chance.IntN(breaks) == 0 {
					data[i] = '\n'
				}
			}
			line := appendUnbroken(nil, data)
			require.NotContains(t, string(line), "\n")
			packed, rest, err := cutUnbroken(append(line, `","key":1`...))
			require.NoError(t, err)
			require.Equal(t, `","key":1`, string(rest))
			back, err := appendBroken(nil, packed)
			require.NoError(t, err)
			require.Equal(t, string(data), string(back))
			if _, err := appendBroken(nil, packed[:len(packed)-1]); size > 0 && len(packed) > 1 && packed[len(packed)-1] != 0 {
				require.ErrorIs(t, err, errBroken, "cut off")
			}
		}
	}
}
