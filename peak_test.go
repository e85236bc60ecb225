package gpumux

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPeaks_QuantilesAreAtMostAnEighthTooLarge(t *testing.T) {
	var p Peaks
	var sizes []int64
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		size := int64(1<<20) + r.Int64N(8<<30)
		sizes = append(sizes, size)
		p.Add(size)
	}
	slices.Sort(sizes)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
		exact := sizes[max(0, int(q*float64(len(sizes)))-1)]
		require.GreaterOrEqual(t, int64(p.Quantile(q)), exact)
		require.LessOrEqual(t, int64(p.Quantile(q)), exact+exact/8+1)
	}
	require.Equal(t, Size(sizes[len(sizes)-1]), p.Max())
	require.Equal(t, p.Max(), p.Quantile(1))
	require.EqualValues(t, 10_000, p.Items())
}

func TestPeaks_MergingIsAddingAll(t *testing.T) {
	var all, a, b Peaks
	for i, size := range []int64{5 << 30, 3 << 20, 9 << 30, 100 << 20, 100 << 20, 1} {
		all.Add(size)
		if i%2 == 0 {
			a.Add(size)
		} else {
			b.Add(size)
		}
	}
	a.Budget, b.Budget, all.Budget = 4<<30, 8<<30, 8<<30
	var none *Peaks
	a.Merge(none)
	a.Merge(&Peaks{})
	a.Merge(&b)
	require.Equal(t, all, a)
	var empty Peaks
	empty.Merge(&all)
	require.Equal(t, all, empty)
	b.Add(0)
	b.Add(-7)
	require.EqualValues(t, 3, b.Items(), "what is unknown does not count")
}

func TestPeaks_TravelsAsJSON(t *testing.T) {
	var p Peaks
	p.Budget, p.GPUs = 8<<30, 2
	for _, size := range []int64{1 << 30, 1 << 30, 3 << 30} {
		p.Add(size)
	}
	data, err := json.Marshal(struct {
		Peak *Peaks `json:"peak,omitempty"`
	}{&p})
	require.NoError(t, err)
	require.JSONEq(t, `{"peak":{"items":3,"p50":1207959551,"p99":3221225472,"max":3221225472,"budget":8589934592,"gpus":2,
		"first":216,"counts":[2,0,0,0,0,0,0,0,0,0,0,0,1]}}`, string(data))
	var back struct{ Peak *Peaks }
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, &p, back.Peak)
	for _, bad := range []string{`{"first":-9}`, `{"first":511,"counts":[1,1]}`, `{"counts":[-1]}`, `[]`} {
		require.Error(t, json.Unmarshal([]byte(bad), new(Peaks)), bad)
	}
}

func TestPeaks_SayWhatWouldDo(t *testing.T) {
	one := func(budget Size, sizes ...int64) string {
		p := Peaks{Budget: budget}
		for _, size := range sizes {
			p.Add(size)
		}
		return p.String()
	}
	require.Equal(t, "p50 3.4GiB, p99 3.4GiB, max 3.4GiB of 8GiB; memory: 4GiB would do", one(8<<30, 34<<30/10))
	require.Equal(t, "p50 100MiB, p99 100MiB, max 100MiB; memory: 128MiB would do", one(0, 100<<20))
	require.Equal(t, "p50 7.9GiB, p99 7.9GiB, max 7.9GiB of 8GiB", one(8<<30, 79<<30/10))
	require.Equal(t, "not measured", one(8<<30))
	// On GPUs the frameworks' limits lie below the budget.
	for _, c := range []struct {
		gpus int
		peak Size
		want Size
	}{{1, 34 << 30 / 10, 5 << 30}, {1, 100 << 20, 256 << 20}, {2, 34 << 30 / 10, 6 << 30}, {1, 70 << 30, 80 << 30}} {
		p := Peaks{GPUs: c.gpus}
		p.Add(int64(c.peak))
		require.Equal(t, c.want, p.Need(), "%d × %s", c.gpus, c.peak)
		require.GreaterOrEqual(t, Room(p.Need()/Size(c.gpus))*Size(c.gpus), c.peak+c.peak/8)
	}
	var none *Peaks
	require.Equal(t, "not measured", none.String())
	require.Nil(t, none.Known())
	require.Zero(t, none.Need())
}
