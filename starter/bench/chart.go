package bench

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// colors of the ways, apart also for people who do not tell red from green.
var colors = map[Way]color.RGBA{
	Bare:       {0x76, 0x76, 0x76, 0xff},
	Persistent: {0x00, 0x72, 0xb2, 0xff},
	Fresh:      {0xd5, 0x5e, 0x00, 0xff},
	Sequential: {0x00, 0x9e, 0x73, 0xff},
	OnCPU:      {0xcc, 0x79, 0xa7, 0xff},
}

const (
	// The size of a chart in points, which is vg.Length's unit.
	chartWidth, chartHeight vg.Length = 380, 230
	// leastBins and mostBins bound the classes of a histogram over the whole range of its workload.
	leastBins, mostBins = 10, 40
)

// newPlot has the look of all charts.
func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.White
	for _, style := range []*draw.TextStyle{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font = font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, vg.Points(9))
	}
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.Title.Padding = vg.Points(8)
	p.Legend.Top = true
	return p
}

// svgHead is what stands before the <svg> element.
var svgHead = regexp.MustCompile(`(?s)^.*?<svg`)

// svg draws a chart as an element for a page; the title is for readers who cannot see it.
func svg(p *plot.Plot) (template.HTML, error) {
	to, err := p.WriterTo(chartWidth, chartHeight, "svg")
	if err != nil {
		return "", fmt.Errorf("draw the chart %q: %w", p.Title.Text, err)
	}
	var b bytes.Buffer
	if _, err := to.WriteTo(&b); err != nil {
		return "", fmt.Errorf("draw the chart %q: %w", p.Title.Text, err)
	}
	title := template.HTMLEscapeString(p.Title.Text)
	text := svgHead.ReplaceAllLiteralString(b.String(), `<svg role="img" aria-label="`+title+`"`)
	return template.HTML(strings.ReplaceAll(text, "Liberation Sans", "Liberation Sans,Arial,sans-serif")), nil
}

// throughput draws items per second as a bar per way.
func throughput(rows []Row) (template.HTML, error) {
	p := newPlot("throughput")
	p.Y.Label.Text = "items per second"
	p.Y.Min = 0
	names := make([]string, len(rows))
	var tops plotter.XYLabels
	for i, row := range rows {
		bar, err := plotter.NewBarChart(plotter.Values{row.Rate}, vg.Points(34))
		if err != nil {
			return "", fmt.Errorf("draw throughput: %w", err)
		}
		bar.XMin = float64(i)
		bar.Color, bar.LineStyle.Width = colors[row.Way], 0
		p.Add(bar)
		names[i] = fmt.Sprintf("%s %d", row.Way, row.Slots)
		tops.XYs = append(tops.XYs, plotter.XY{X: float64(i), Y: row.Rate})
		tops.Labels = append(tops.Labels, figure(row.Rate))
		p.Y.Max = max(p.Y.Max, row.Rate*1.12) // room for the label
	}
	labels, err := plotter.NewLabels(tops)
	if err != nil {
		return "", fmt.Errorf("draw throughput: %w", err)
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i] = p.X.Tick.Label
		labels.TextStyle[i].XAlign, labels.TextStyle[i].YAlign = draw.XCenter, draw.YBottom
	}
	labels.Offset.Y = vg.Points(3)
	p.Add(labels)
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.5, float64(len(rows))-0.5
	p.Y.Tick.Marker = rateTicks{}
	return svg(p)
}

// histogram draws how the times of items are spread, as a line per way over classes of equal ratio.
func histogram(rows []Row) (template.HTML, error) {
	p := newPlot("time per item")
	p.Y.Label.Text = "share of items"
	least, most := bounds(rows)
	if least == 0 {
		return "", nil
	}
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, timeTicks{}
	bins := leastBins
	for _, row := range rows {
		bins = min(max(bins, 2*int(math.Sqrt(float64(len(row.times))))), mostBins)
	}
	for _, row := range rows {
		if len(row.times) == 0 {
			continue
		}
		line, err := plotter.NewLine(steps(row.times, least, most, bins))
		if err != nil {
			return "", fmt.Errorf("draw times: %w", err)
		}
		line.Color, line.Width = colors[row.Way], vg.Points(1.5)
		if row.Way == Bare && row.Slots == 1 {
			line.Dashes = []vg.Length{vg.Points(3), vg.Points(2)}
		}
		p.Add(line)
		p.Legend.Add(fmt.Sprintf("%s %d", row.Way, row.Slots), line)
	}
	p.X.Min, p.X.Max, p.Y.Min = least, most, 0
	p.Y.Max *= 1.45 // room for the legend
	return svg(p)
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
func steps(times []time.Duration, least, most float64, bins int) plotter.XYs {
	counts := make([]int, bins)
	width := math.Log(most/least) / float64(bins)
	for _, t := range times {
		i := int(math.Log(max(t.Seconds(), least)/least) / width)
		counts[min(i, bins-1)]++
	}
	var line plotter.XYs
	for i, n := range counts {
		share := float64(n) / float64(len(times))
		line = append(line, plotter.XY{X: least * math.Exp(width*float64(i)), Y: share}, plotter.XY{X: least * math.Exp(width*float64(i+1)), Y: share})
	}
	return line
}

// bySlots draws throughput over numbers of slots.
func bySlots(sweep []Step) (template.HTML, error) {
	p := newPlot("medium items by slots")
	p.X.Label.Text, p.Y.Label.Text = "slots", "items per second"
	p.Y.Min = 0
	var points plotter.XYs
	var ticks plot.ConstantTicks
	for _, s := range sweep {
		points = append(points, plotter.XY{X: float64(s.Slots), Y: s.Rate})
		ticks = append(ticks, plot.Tick{Value: float64(s.Slots), Label: strconv.Itoa(s.Slots)})
	}
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return "", fmt.Errorf("draw numbers of slots: %w", err)
	}
	line.Color, line.Width, dots.Color, dots.Shape = colors[Persistent], vg.Points(1.5), colors[Persistent], draw.CircleGlyph{}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks, rateTicks{}
	p.Add(line, dots)
	return svg(p)
}

// timeTicks marks powers of ten as 10µs, 1ms, 1s.
type timeTicks struct{}

// Ticks is plot.Ticker's.
func (timeTicks) Ticks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Floor(math.Log10(least)); power <= math.Ceil(math.Log10(most)); power++ {
		for _, part := range []float64{1, 2, 5} {
			value := part * math.Pow(10, power)
			if value < least || value > most {
				continue
			}
			tick := plot.Tick{Value: value}
			if part == 1 || most/least < 100 {
				tick.Label = seconds(value)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// rateTicks are the usual ones with thousands set apart.
type rateTicks struct{}

// Ticks is plot.Ticker's.
func (rateTicks) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = tickFigure(ticks[i].Value)
		}
	}
	return ticks
}

func tickFigure(rate float64) string {
	if rate < 1000 {
		return strconv.FormatFloat(rate, 'g', 3, 64)
	}
	return figure(rate)
}
