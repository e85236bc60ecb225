package bench

import (
	"strconv"
	"strings"

	"github.com/gpumux/gpumux/starter/bench/chart"
)

// colors of the ways, apart also for people who do not tell red from green.
var colors = map[Way]string{
	Bare: "#767676", Persistent: "#0072b2", Fresh: "#d55e00", Sequential: "#009e73", OnCPU: "#cc79a7",
}

// throughput shows items per second, round by round.
func throughput(rows []Row) chart.Chart {
	c := chart.Chart{Title: "throughput", X: "items per second: quartiles of rounds, and the 95 % interval of the median", Tick: tickFigure}
	for _, row := range rows {
		s := row.Rate
		c.Boxes = append(c.Boxes, chart.Box{
			Name: row.name(), Figure: figure(s.Median), Color: colors[row.Way],
			Least: min(s.Low, s.Q1), First: s.Q1, Middle: s.Median, Last: s.Q3, Most: max(s.High, s.Q3),
		})
	}
	return c
}

// itemTimes shows what items took.
func itemTimes(rows []Row) chart.Chart {
	c := chart.Chart{Title: "time of an item", X: "from the least to the 99th percentile, with quartiles", Tick: seconds, Log: true}
	for _, row := range rows {
		const clock = 1e-8 // less is the clock's doing
		t := row.Item
		c.Boxes = append(c.Boxes, chart.Box{
			Name: row.name(), Figure: seconds(t.Median), Color: colors[row.Way], Least: max(t.Min, clock), First: max(t.Q1, clock),
			Middle: max(t.Median, clock), Last: max(t.Q3, clock), Most: max(t.P99, clock),
		})
	}
	return c
}

// name is "persistent mps 4".
func (r Row) name() string {
	parts := []string{string(r.Way)}
	if r.Sharing != "" && r.Sharing != timeSliced {
		parts = append(parts, r.Sharing)
	}
	return strings.Join(append(parts, strconv.Itoa(r.Clients)), " ")
}

func tickFigure(rate float64) string {
	if rate < 1000 {
		return strconv.FormatFloat(rate, 'g', 3, 64)
	}
	return figure(rate)
}
