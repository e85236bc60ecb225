package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/wire"
)

// driver says what a process holds: what was read last, what is held now, and the largest
// reading of late.
type driver struct {
	unwatched
	last, now, peak int64
}

func (d *driver) Held() int64    { return d.last }
func (d *driver) Measure() int64 { d.last = d.now; return d.now }
func (d *driver) Peak() int64    { return d.peak }

func TestMemory_APeakIsWhatWasLiveAndWhatIsBesideTheAllocators(t *testing.T) {
	now, long := time.Now(), time.Minute
	d := &driver{last: 900, now: 900, peak: 950}
	m := &Memory{Watched: d}
	require.EqualValues(t, 950, m.PeakOf(now, long, 0), "nobody tells what is live")
	m.Report(&wire.Allocators{Live: 100, Reserved: 800})
	m.Report(nil)
	require.EqualValues(t, 600, m.PeakOf(now, long, 500), "500 and a context of 100")
	require.Zero(t, m.PeakOf(now, long, 0), "it tells when it has measured")

	m.Report(&wire.Allocators{Live: 100, Reserved: 1800})
	d.now = 1950
	require.EqualValues(t, 1650, m.PeakOf(now, long, 1500), "the last reading was too old")
	m.Report(&wire.Allocators{Live: 100, Reserved: 200})
	require.EqualValues(t, 1950, m.PeakOf(now, long, 1500), "the task has emptied its cache since the reading: no more than was ever seen")
	m.Report(&wire.Allocators{Live: 3000, Reserved: 3000})
	*d = driver{}
	require.Zero(t, m.PeakOf(now, long, 3000), "the driver does not tell what is beside")

	host := &Memory{Watched: &driver{peak: 70}, Host: true}
	require.EqualValues(t, 90, host.PeakOf(now, long, 90))
}

func TestMemory_WhatIsUnusedIsNotNeeded(t *testing.T) {
	d := &driver{last: 900, now: 900}
	m := &Memory{Watched: d}
	m.Report(&wire.Allocators{Live: 100, Reserved: 800})
	got, fresh := m.Lately()
	require.True(t, fresh)
	require.Equal(t, [2]int64{900, 700}, [2]int64{got.Held, got.Unused})
	d.now = 0
	got = m.Now()
	require.EqualValues(t, 800, got.Held, "where the driver does not tell, at least what the allocators have")
}
