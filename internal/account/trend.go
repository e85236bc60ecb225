package account

import "slices"

const (
	// trendPoints is the most points of a trend; from leastPoints on it has a slope.
	trendPoints = 16
	leastPoints = 6
	// risingPairs is the share of all pairs of points that rise in a rising trend.
	risingPairs = 0.8
)

// trend follows what a process needs between items. Each point is the minimum of a
// stretch of items; points are joined in pairs when there are too many.
type trend struct {
	points []point
	// each is how many items a point stands for.
	each int
	// swing is how far newer items peak above what is needed between them.
	swing int64
	// stale says that the slope is to be computed again.
	stale  bool
	value  float64
	rising bool
}

type point struct {
	item int
	held int64
}

func (t *trend) observe(item int, held, peak int64) {
	t.swing = max(t.swing-t.swing/32, peak-held)
	t.each = max(1, t.each)
	t.stale = true
	if n := len(t.points); n > 0 && item < t.points[n-1].item+t.each {
		t.points[n-1].held = min(t.points[n-1].held, held)
		return
	}
	t.points = append(t.points, point{item, held})
	if len(t.points) <= trendPoints {
		return
	}
	t.each *= 2
	joined := t.points[:0]
	for pair := range slices.Chunk(t.points, 2) {
		joined = append(joined, point{pair[0].item, min(pair[0].held, pair[len(pair)-1].held)})
	}
	t.points = joined
}

// forget starts anew after a good trim.
func (t *trend) forget() { *t = trend{swing: t.swing} }

// rise is by how many bytes the newest point lies above the oldest.
func (t *trend) rise() float64 {
	if len(t.points) == 0 {
		return 0
	}
	return float64(t.points[len(t.points)-1].held - t.points[0].held)
}

// items is how many items lie between the oldest and the newest point.
func (t *trend) items() int {
	if len(t.points) == 0 {
		return 0
	}
	return t.points[len(t.points)-1].item - t.points[0].item
}

// slope is the median over all pairs of points, in bytes per item, and whether nearly all
// of them rise. It ignores the first point: the first item loads what later ones use.
func (t *trend) slope() (perItem float64, rising bool) {
	if !t.stale {
		return t.value, t.rising
	}
	t.stale, t.value, t.rising = false, 0, false
	if len(t.points) < leastPoints {
		return 0, false
	}
	var slopes []float64
	up := 0
	for i := 1; i < len(t.points); i++ {
		for j := i + 1; j < len(t.points); j++ {
			a, b := t.points[i], t.points[j]
			slopes = append(slopes, float64(b.held-a.held)/float64(b.item-a.item))
			if b.held > a.held {
				up++
			}
		}
	}
	slices.Sort(slopes)
	t.value = slopes[len(slopes)/2]
	t.rising = t.value > 0 && float64(up) >= risingPairs*float64(len(slopes))
	return t.value, t.rising
}
