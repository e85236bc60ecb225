// Package chart draws rows of quartiles as SVG.
//
// It owns sizes, axes and ticks. It knows nothing of what the figures mean, and never writes a file.
package chart

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// The size of a chart and the place of its data in it, in pixels. Each row has its name to the left of its data and its figure to the
// right, so that nothing is in the way of anything.
const (
	width                          = 520
	plotLeft, plotRight            = 140, 440
	plotTop, rowHeight, plotBottom = 34, 22, 42
)

// Box is a row of a chart: a line between the outer values, a box between the quartiles and a mark at the median.
type Box struct {
	Name, Figure, Color              string
	Least, First, Middle, Last, Most float64
}

// Chart draws boxes over an axis that begins at 0, or is logarithmic.
type Chart struct {
	Title, X string
	Boxes    []Box
	Log      bool
	// Tick words a value on the axis.
	Tick func(float64) string
}

// ends are the ends of the axis.
func (c Chart) ends() (from, to float64) {
	from = math.Inf(1)
	for _, b := range c.Boxes {
		from, to = min(from, b.Least), max(to, b.Most)
	}
	if !c.Log {
		return 0, to
	}
	return from, max(to, 1.5*from)
}

// SVG is the whole element; the title is for readers who cannot see it.
func (c Chart) SVG() template.HTML {
	from, to := c.ends()
	if to == 0 || len(c.Boxes) == 0 {
		return ""
	}
	place := func(value float64) float64 {
		part := (value - from) / (to - from)
		if c.Log {
			part = math.Log(value/from) / math.Log(to/from)
		}
		return plotLeft + part*(plotRight-plotLeft)
	}
	bottom := plotTop + rowHeight*len(c.Boxes)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg role="img" aria-label="%s" viewBox="0 0 %d %d" width="%[2]d" height="%d" `+
		`font-family="Liberation Sans,Arial,sans-serif" font-size="11"><rect width="100%%" height="100%%" fill="#fff"/>`,
		c.Title, width, bottom+plotBottom)
	text := func(x, y float64, anchor, text string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, template.HTMLEscapeString(text))
	}
	fmt.Fprintf(&b, `<text x="%d" y="18" text-anchor="middle" font-size="13">%s</text>`, (plotLeft+plotRight)/2, c.Title)
	for _, value := range c.ticks(from, to) {
		x := place(value)
		fmt.Fprintf(&b, `<path d="M%.1f %d V%d" stroke="#e4e4e4"/>`, x, plotTop, bottom)
		text(x, float64(bottom+15), "middle", c.Tick(value))
	}
	text((plotLeft+plotRight)/2, float64(bottom+33), "middle", c.X)
	for i, one := range c.Boxes {
		y := float64(plotTop+rowHeight*i) + rowHeight/2
		least, first, middle, last, most := place(one.Least), place(one.First), place(one.Middle), place(one.Last), place(one.Most)
		fmt.Fprintf(&b, `<g stroke="%s" fill="%[1]s"><path d="M%.1f %.1f H%.1f"/>`, one.Color, least, y, most)
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="12" fill-opacity=".35"/>`, first, y-6, max(1, last-first))
		fmt.Fprintf(&b, `<path d="M%.1f %.1f v12" stroke-width="3"/></g>`, middle, y-6)
		text(plotLeft-8, y+4, "end", one.Name)
		text(plotRight+12, y+4, "start", one.Figure)
	}
	fmt.Fprintf(&b, `<path d="M%d %d V%d H%d" fill="none" stroke="#444"/></svg>`, plotLeft, plotTop, bottom, plotRight)
	return template.HTML(b.String())
}

// ticks are at most six round values on the axis.
func (c Chart) ticks(from, to float64) (values []float64) {
	if !c.Log {
		step := tickStep(to)
		for i := 0; float64(i)*step <= to; i++ {
			values = append(values, float64(i)*step)
		}
		return values
	}
	parts := []float64{1}
	if to/from < 30 {
		parts = []float64{1, 2, 5}
	}
	for power := math.Floor(math.Log10(from)); power <= math.Ceil(math.Log10(to)); power++ {
		for _, part := range parts {
			if value := part * math.Pow(10, power); value >= from && value <= to {
				values = append(values, value)
			}
		}
	}
	every := (len(values) + 5) / 6
	var kept []float64
	for i := 0; i < len(values); i += max(1, every) {
		kept = append(kept, values[i])
	}
	return kept
}

// tickStep is 1, 2 or 5 times a power of ten, so that there are at most six ticks up to most.
func tickStep(most float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(most/5)))
	for _, factor := range []float64{1, 2, 5} {
		if most <= 5*factor*step {
			return factor * step
		}
	}
	return 10 * step
}
