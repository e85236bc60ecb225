package gpumux

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"

	"github.com/gpumux/gpumux/internal/text"
)

// steps is the number of steps into which a digest divides each doubling of memory. So
// its sizes are exact to an eighth.
const steps = 8

// maxSteps is the number of steps of all sizes that an int64 holds.
const maxSteps = 60 * steps

// Peaks is a digest of the memory that items held at their peak, in bytes: how many of
// them lay in each step of size. Digests merge without loss, so that a map of any size
// knows what its items needed. The zero value is empty, and so is a nil digest.
//
// In JSON it is {"items","p50","p99","max","budget"}, all but the first in bytes, "gpus",
// and the steps themselves as "first" and "counts": counts[i] items lay in step first+i.
// Step s holds the sizes from (8 + s%8) << (s/8) up to the next step's, step 0 smaller
// ones too.
type Peaks struct {
	// Budget is the largest budget among the slots in which the items ran; 0 when none had
	// one.
	Budget Size
	// GPUs is the most GPUs that one of those slots had; 0 when all were of the CPU.
	GPUs int

	items, largest int64
	counts         [maxSteps]int64
}

// step is the number of the step that a size lies in.
func step(bytes int64) int {
	shift := max(0, bits.Len64(uint64(bytes))-4)
	return max(0, shift*steps+int(bytes>>shift)-steps)
}

// upper is the largest size in a step.
func upper(at int) int64 { return int64(at%steps+steps+1)<<(at/steps) - 1 }

// Add adds the peak of one item. A size below 1 is unknown and does not count.
func (p *Peaks) Add(bytes int64) {
	if bytes > 0 {
		p.items++
		p.counts[step(bytes)]++
		p.largest = max(p.largest, bytes)
	}
}

// Merge adds all of another digest.
func (p *Peaks) Merge(other *Peaks) {
	if other == nil {
		return
	}
	for i, n := range other.counts {
		p.counts[i] += n
	}
	p.items += other.items
	p.largest = max(p.largest, other.largest)
	p.Budget, p.GPUs = max(p.Budget, other.Budget), max(p.GPUs, other.GPUs)
}

// Items is how many items were measured.
func (p *Peaks) Items() int64 {
	if p == nil {
		return 0
	}
	return p.items
}

// Max is the largest peak.
func (p *Peaks) Max() Size {
	if p == nil {
		return 0
	}
	return Size(p.largest)
}

// Quantile is the size that a share q of the items, from 0 to 1, did not exceed. It is up
// to an eighth too large, never too small.
func (p *Peaks) Quantile(q float64) Size {
	if p == nil || p.items == 0 {
		return 0
	}
	rank := min(p.items, max(1, int64(q*float64(p.items)+0.999999)))
	for i, n := range p.counts {
		if rank -= n; rank <= 0 {
			return min(Size(upper(i)), Size(p.largest))
		}
	}
	return Size(p.largest)
}

// ContextRoom is the assumed memory of a process on a GPU beside its frameworks'
// allocations, until it is measured: CUDA's context (up to some 500 MiB), code,
// workspaces.
const ContextRoom = 1 << 30

// Room is how many bytes of a slot's budget on one GPU its frameworks may reserve, until
// more is known than ContextRoom.
func Room(budget Size) Size { return budget - min(ContextRoom, budget/4) }

// rounding plus an eighth of the live tensors is the most that an allocator reserves
// beside them: PyTorch takes blocks of 2 and of 20 MiB for the small ones.
const rounding = 32 << 20

// Need is the budget that would do for items like these: the largest peak and an eighth
// more, as a person would write it. On GPUs the Room of each one's part holds that much,
// if the peak spreads evenly over them. It is 0 for an empty digest.
func (p *Peaks) Need() Size {
	largest := int64(p.Max())
	need := largest + largest/8
	if need > 0 && p.GPUs > 0 {
		gpus := int64(p.GPUs)
		each := (need+gpus-1)/gpus + rounding
		need = gpus * min(each+ContextRoom, (4*each+2)/3) // the inverse of Room
	}
	unit := int64(1 << 30)
	switch {
	case need < 512<<20:
		unit = 64 << 20
	case need < 4<<30:
		unit = 256 << 20
	}
	return Size((need + unit - 1) / unit * unit)
}

// String is a line for people: "p50 1.2GiB, p99 3.1GiB, max 3.4GiB of 8GiB; memory: 4GiB
// would do".
func (p *Peaks) String() string {
	if p.Items() == 0 {
		return "not measured"
	}
	need := p.Need()
	return fmt.Sprintf("p50 %s, p99 %s, max %s", p.Quantile(0.5), p.Quantile(0.99), p.Max()) +
		text.When(p.Budget > 0, " of %s", p.Budget) + text.When(p.Budget == 0 || need < p.Budget, "; memory: %s would do", need)
}

// Known is p, or nil if p is empty, so that JSON leaves the field out.
func (p *Peaks) Known() *Peaks {
	if p.Items() == 0 {
		return nil
	}
	return p
}

type peaksJSON struct {
	Items  int64   `json:"items"`
	P50    int64   `json:"p50"`
	P99    int64   `json:"p99"`
	Max    int64   `json:"max"`
	Budget int64   `json:"budget,omitempty"`
	GPUs   int     `json:"gpus,omitempty"`
	First  int     `json:"first"`
	Counts []int64 `json:"counts"`
}

// MarshalJSON writes the digest as its type describes.
func (p *Peaks) MarshalJSON() ([]byte, error) {
	first, last := step(int64(p.Quantile(0))), step(p.largest)
	return json.Marshal(peaksJSON{
		Items: p.items, P50: int64(p.Quantile(0.5)), P99: int64(p.Quantile(0.99)), Max: p.largest, Budget: int64(p.Budget),
		GPUs: p.GPUs, First: first, Counts: p.counts[first : last+1],
	})
}

// UnmarshalJSON reads what MarshalJSON wrote. It computes the quantiles anew.
func (p *Peaks) UnmarshalJSON(data []byte) error {
	var in peaksJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if in.First < 0 || in.First > maxSteps || len(in.Counts) > maxSteps-in.First || in.Max < 0 {
		return errors.New("a digest of peaks has steps that no size lies in")
	}
	*p = Peaks{Budget: Size(in.Budget), GPUs: max(0, in.GPUs), largest: in.Max}
	copy(p.counts[in.First:], in.Counts)
	for _, n := range in.Counts {
		if n < 0 {
			return errors.New("a digest of peaks has a negative count")
		}
		p.items += n
	}
	return nil
}
