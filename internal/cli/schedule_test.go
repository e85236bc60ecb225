package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/starter"
)

func TestSchedules_List(t *testing.T) {
	at := time.Date(2026, 3, 1, 2, 0, 0, 0, time.Local)
	nightly := starter.ScheduleInfo{Name: "nightly", Task: "embed", Items: 1200, Input: "new.jsonl", Next: []time.Time{at},
		Times: starter.ScheduleSpec{Cron: []string{"0 2 * * *"}, Zone: "Europe/Berlin"}, Maps: []string{"nightly-1", "nightly-2"}}
	paused := starter.ScheduleInfo{Name: "hourly", Paused: true}
	var b strings.Builder
	require.NoError(t, listSchedules(&b, []starter.ScheduleInfo{nightly, paused}))
	require.Equal(t, `NAME     TASK   WHEN                     NEXT                 LAST MAP   INPUT
nightly  embed  0 2 * * * Europe/Berlin  2026-03-01 02:00:00  nightly-2  new.jsonl
hourly   -      - UTC                    paused               -          -
`, b.String())
}
