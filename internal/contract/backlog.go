package contract

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
)

// Backlog is the pieces that are not handed out, in order of their rung.
type Backlog []Piece

func (b Backlog) Items() (n int64) {
	for _, piece := range b {
		n += piece.Len()
	}
	return n
}

// Due is how long it takes until a piece may be handed out: 0 where one may now, below 0
// where there is none.
func (b Backlog) Due(now time.Time) time.Duration {
	shortest := time.Duration(-1)
	for _, piece := range b {
		if wait := max(0, piece.Due.Sub(now)); shortest < 0 || wait < shortest {
			shortest = wait
		}
	}
	return shortest
}

// Waiting is how many items wait for another try.
func (b Backlog) Waiting(now time.Time) (items int64) {
	for _, piece := range b {
		if piece.Due.After(now) {
			items += piece.Len()
		}
	}
	return items
}

// First is the place of the piece to cut from next: higher rungs first, because they are
// the stragglers.
func (b Backlog) First(now time.Time) int {
	at := -1
	for i, piece := range b {
		if !piece.Due.After(now) && (at < 0 || piece.Rung > b[at].Rung) {
			at = i
		}
	}
	return at
}

// Take cuts a chunk of at most so many items off a piece. Of values of a stage before it
// goes on with the pieces that are like it.
func (b *Backlog) Take(at int, items int64) Piece {
	piece := (*b)[at]
	piece.Work = (*b)[at].Take(items)
	b.dropEmpty(at)
	for at := 0; at < len(*b) && piece.From != nil && piece.Len() < items && len(piece.Runs) < MaxRuns; {
		next := (*b)[at]
		if next.From == nil || next.List != nil || piece.List != nil || next.Rung != piece.Rung || next.Pace+piece.Pace > 0 ||
			next.Tries != piece.Tries || !next.Due.Equal(piece.Due) {
			at++
			continue
		}
		more := (*b)[at].Take(items - piece.Len())
		piece.Runs, piece.From = piece.Runs.Union(more.Runs), JoinWritten(piece.From, next.From)
		if (*b)[at].Len() > 0 {
			break
		}
		b.dropEmpty(at)
	}
	return piece
}

// Cut takes so many items off the first pieces.
func (b *Backlog) Cut(items int64) (pieces []Piece) {
	for items > 0 {
		piece := (*b)[0]
		piece.Work = (*b)[0].Cut(items)
		b.dropEmpty(0)
		items -= piece.Len()
		pieces = append(pieces, piece)
	}
	return pieces
}

func (b *Backlog) dropEmpty(at int) {
	if (*b)[at].Len() == 0 {
		*b = slices.Delete(*b, at, at+1)
	}
}

// Add puts a piece back, joined with what it continues.
func (b *Backlog) Add(piece Piece) {
	if piece.Len() == 0 {
		return
	}
	for i := range *b {
		if (*b)[i].Rung == piece.Rung && join(&(*b)[i], piece) {
			return
		}
	}
	at, _ := slices.BinarySearchFunc(*b, piece, func(a, b Piece) int { return cmp.Compare(a.Rung, b.Rung) })
	*b = slices.Insert(*b, at, piece)
}

// join adds a piece to one of the same rung. Slow pieces of different paces stay apart.
func join(to *Piece, piece Piece) bool {
	switch {
	case to.Tries != piece.Tries || !to.Due.Equal(piece.Due), !slices.Equal(to.From, piece.From):
		return false
	case to.List != nil || piece.List != nil:
		if to.List == nil || piece.List == nil || *to.List != *piece.List || to.Start != piece.End && to.End != piece.Start {
			return false
		}
		to.Start, to.End = min(to.Start, piece.Start), max(to.End, piece.End)
	case to.Pace == 0 && piece.Pace == 0, to.Runs[len(to.Runs)-1].End == piece.Runs[0].Start:
		to.Runs = to.Runs.Union(piece.Runs)
	default:
		return false
	}
	to.Pace = max(to.Pace, piece.Pace)
	return true
}

// EasePace lowers the expected time of slow pieces after a chunk of one is done.
func (b Backlog) EasePace(perItem gpumux.Duration) {
	for i, piece := range b {
		if piece.Pace > perItem {
			b[i].Pace = max(1, (piece.Pace+perItem)/2)
		}
	}
}

// Spill takes the piece with the most runs out when there are more than so many.
func (b *Backlog) Spill(limit int) (piece Piece, spilled bool) {
	runs, at := 0, 0
	for i, piece := range *b {
		if runs += len(piece.Runs); len(piece.Runs) > len((*b)[at].Runs) {
			at = i
		}
	}
	if runs <= limit {
		return piece, false
	}
	piece = (*b)[at]
	*b = slices.Delete(*b, at, at+1)
	return piece, true
}
