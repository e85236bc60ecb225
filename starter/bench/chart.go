package bench

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
)

// colors of the ways, apart also for people who do not tell red from green.
var colors = map[Way]string{
	Bare: "#767676", Persistent: "#0072b2", Fresh: "#d55e00", Sequential: "#009e73", OnCPU: "#cc79a7",
}

const (
	// The size of a chart and the place of its data in it, in pixels.
	chartWidth, chartHeight             = 500, 300
	plotLeft, plotTop, plotRight, plotY = 70, 34, 488, 258
	// leastBins and mostBins bound the classes of a histogram over the whole range of its workload.
	leastBins, mostBins = 10, 40
)

// chart is an SVG element for a page. Data goes from 0 to 1 in x and from 0 to most in y.
type chart struct {
	title, x, y string
	most        float64
	drawn       strings.Builder
}

func (c *chart) at(x, y float64) (px, py float64) {
	return plotLeft + x*(plotRight-plotLeft), plotY - y/c.most*(plotY-plotTop)
}

func (c *chart) text(x, y float64, anchor, text string) {
	fmt.Fprintf(&c.drawn, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, template.HTMLEscapeString(text))
}

// bar is one of n bars side by side.
func (c *chart) bar(i, n int, value float64, color, name, label string) {
	middle, top := c.at((float64(i)+0.5)/float64(n), value)
	width := min(44, 0.7*(plotRight-plotLeft)/float64(n))
	fmt.Fprintf(&c.drawn, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, middle-width/2, top, width, plotY-top, color)
	c.text(middle, top-4, "middle", label)
	c.text(middle, plotY+15, "middle", name)
}

// line joins points.
func (c *chart) line(points [][2]float64, color, more string) {
	var to strings.Builder
	for _, p := range points {
		x, y := c.at(p[0], p[1])
		fmt.Fprintf(&to, "%.1f,%.1f ", x, y)
	}
	fmt.Fprintf(&c.drawn, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2" %s/>`, to.String(), color, more)
}

// mark is a tick below the data.
func (c *chart) mark(x float64, label string) {
	at, _ := c.at(x, 0)
	fmt.Fprintf(&c.drawn, `<path d="M%.1f %d v4" stroke="#444"/>`, at, plotY)
	c.text(at, plotY+15, "middle", label)
}

// svg is the whole element; the title is for readers who cannot see it.
func (c *chart) svg() template.HTML {
	title := template.HTMLEscapeString(c.title)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg role="img" aria-label="%s" viewBox="0 0 %d %d" width="%[2]d" height="%d" `+
		`font-family="Liberation Sans,Arial,sans-serif" font-size="11"><rect width="100%%" height="100%%" fill="#fff"/>`,
		title, chartWidth, chartHeight)
	fmt.Fprintf(&b, `<text x="%d" y="18" text-anchor="middle" font-size="13">%s</text>`, chartWidth/2, title)
	fmt.Fprintf(&b, `<text transform="translate(12 %d) rotate(-90)" text-anchor="middle">%s</text>`, (plotTop+plotY)/2, c.y)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`, (plotLeft+plotRight)/2, chartHeight-8, c.x)
	step := tickStep(c.most)
	for value := 0.0; value <= c.most; value += step {
		_, y := c.at(0, value)
		fmt.Fprintf(&b, `<path d="M%d %.1f H%d" stroke="#e4e4e4"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			plotLeft, y, plotRight, plotLeft-6, y+4, tickFigure(value))
	}
	b.WriteString(c.drawn.String())
	fmt.Fprintf(&b, `<path d="M%d %d V%d H%d" fill="none" stroke="#444"/></svg>`, plotLeft, plotTop, plotY, plotRight)
	return template.HTML(b.String())
}

// tickStep is 1, 2 or 5 times a power of ten, so that there are at most six ticks up to most.
func tickStep(most float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(most/5)))
	for _, factor := range []float64{1, 2, 5} {
		if most <= 6*factor*step {
			return factor * step
		}
	}
	return 10 * step
}

// throughput draws items per second as a bar per way.
func throughput(rows []Row) template.HTML {
	c := &chart{title: "throughput", y: "items per second"}
	for _, row := range rows {
		c.most = max(c.most, row.Rate*1.12) // room for the label
	}
	if c.most == 0 {
		return ""
	}
	for i, row := range rows {
		c.bar(i, len(rows), row.Rate, colors[row.Way], fmt.Sprintf("%s %d", row.Way, row.Slots), figure(row.Rate))
	}
	return c.svg()
}

// histogram draws how the times of items are spread, as a line per way over classes of equal ratio.
func histogram(rows []Row) template.HTML {
	least, most := bounds(rows)
	if least == 0 {
		return ""
	}
	bins := leastBins
	for _, row := range rows {
		bins = min(max(bins, 2*int(math.Sqrt(float64(len(row.times))))), mostBins)
	}
	c := &chart{title: "time per item", y: "share of items"}
	lines := make([][][2]float64, len(rows))
	for i, row := range rows {
		lines[i] = steps(row.times, least, most, bins)
		for _, p := range lines[i] {
			c.most = max(c.most, p[1]*1.45) // room for the legend
		}
	}
	for i, row := range rows {
		if len(row.times) == 0 {
			continue
		}
		dashes := ""
		if row.Way == Bare && row.Slots == 1 {
			dashes = `stroke-dasharray="4 3"`
		}
		c.line(lines[i], colors[row.Way], dashes)
		y := float64(plotTop + 8 + 14*i)
		fmt.Fprintf(&c.drawn, `<path d="M%d %.1f h22" stroke="%s" stroke-width="2" %s/>`, plotRight-24, y, colors[row.Way], dashes)
		c.text(plotRight-30, y+4, "end", fmt.Sprintf("%s %d", row.Way, row.Slots))
	}
	for power := math.Floor(math.Log10(least)); power <= math.Ceil(math.Log10(most)); power++ {
		for _, part := range []float64{1, 2, 5} {
			value := part * math.Pow(10, power)
			if value < least || value > most {
				continue
			}
			label := ""
			if part == 1 || most/least < 100 {
				label = seconds(value)
			}
			c.mark(math.Log(value/least)/math.Log(most/least), label)
		}
	}
	return c.svg()
}

// bounds are the least and the largest time of all rows in seconds, a little apart; 0 without times. Times below a tenth of a
// microsecond are the clock's.
func bounds(rows []Row) (least, most float64) {
	const clock = 1e-7
	for _, row := range rows {
		if len(row.times) == 0 {
			continue
		}
		first := max(row.times[0].Seconds(), clock)
		if least == 0 || first < least {
			least = first
		}
		most = max(most, row.times[len(row.times)-1].Seconds(), clock)
	}
	return least, max(most, least*1.5)
}

// steps is the outline of a histogram with classes of equal ratio.
func steps(times []time.Duration, least, most float64, bins int) (line [][2]float64) {
	counts := make([]int, bins)
	width := math.Log(most/least) / float64(bins)
	for _, t := range times {
		i := int(math.Log(max(t.Seconds(), least)/least) / width)
		counts[min(i, bins-1)]++
	}
	for i, n := range counts {
		share := float64(n) / float64(max(1, len(times)))
		line = append(line, [2]float64{float64(i) / float64(bins), share}, [2]float64{float64(i+1) / float64(bins), share})
	}
	return line
}

// bySlots draws throughput over numbers of slots.
func bySlots(sweep []Step) template.HTML {
	c := &chart{title: "medium items by slots", x: "slots", y: "items per second"}
	last := float64(sweep[len(sweep)-1].Slots)
	for _, s := range sweep {
		c.most = max(c.most, s.Rate*1.05)
	}
	if c.most == 0 {
		return ""
	}
	var points [][2]float64
	for _, s := range sweep {
		points = append(points, [2]float64{float64(s.Slots) / last, s.Rate})
		c.mark(float64(s.Slots)/last, strconv.Itoa(s.Slots))
		x, y := c.at(float64(s.Slots)/last, s.Rate)
		fmt.Fprintf(&c.drawn, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`, x, y, colors[Persistent])
	}
	c.line(points, colors[Persistent], "")
	return c.svg()
}

func tickFigure(rate float64) string {
	if rate < 1000 {
		return strconv.FormatFloat(rate, 'g', 3, 64)
	}
	return figure(rate)
}
