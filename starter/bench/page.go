package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/gpumux/gpumux/starter/bench/chart"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what page.html shows.
type page struct {
	*Report
	Header []string
	Table  [][]string
	Legend string
	Charts []chartGroup
}

// chartGroup is the charts of one workload.
type chartGroup struct {
	Name   string
	Charts []template.HTML
}

// HTML writes the report as one page that needs nothing from the network: tables, and charts as SVG.
func (r *Report) HTML(to io.Writer) error {
	p := page{Report: r, Legend: legend}
	table := r.table()
	if r.Comparison != nil {
		table = r.Comparison.table()
	}
	p.Header, p.Table = table[0], table[1:]
	for _, name := range Workloads {
		var rows []Row
		for _, row := range r.Rows {
			if row.Workload == name && row.measured() {
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 {
			continue
		}
		group := chartGroup{Name: label(name, rows[0].Size)}
		for _, c := range []chart.Chart{throughput(rows), itemTimes(rows)} {
			group.Charts = append(group.Charts, c.SVG())
		}
		p.Charts = append(p.Charts, group)
	}
	if err := pageTemplate.Execute(to, p); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
