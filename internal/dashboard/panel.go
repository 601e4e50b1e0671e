package dashboard

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// kind of a panel.
type kind int

const (
	// lines over time, and stacked ones.
	lines kind = iota
	stacked
	// number that is there now.
	number
	// rows of a table, as things are now.
	cells
)

// panel describes one panel.
type panel struct {
	kind               kind
	title, about, unit string
	width, height      uint32
	queries            []query
	// bands are names of lines of which "NAME, low end" and "NAME, high end" are drawn as
	// one area.
	bands []string
	// ratio axes go from 0 to 1.
	ratio bool
	// links of what is shown, by title.
	links []link
}

type query struct{ expr, legend string }

type link struct{ title, url string }

// Ends of an interval, after the name of what it is of.
const (
	lowEnd  = ", low end"
	highEnd = ", high end"
)

// Widths, of 24, and heights.
const (
	sixth, quarter, third, half, full = 4, 6, 8, 12, 24

	low, tall = 4, 8
)

func (p panel) build() cog.Builder[grafana.Panel] {
	switch p.kind {
	case number:
		return p.buildNumber()
	case cells:
		return p.buildCells()
	default:
		return p.buildLines()
	}
}

// target of one of the panel's queries.
func (p panel) target(i int, instant bool) *prometheus.DataqueryBuilder {
	q := p.queries[i]
	target := prometheus.NewDataqueryBuilder().Expr(q.expr).LegendFormat(q.legend).RefId(string(rune('A' + i))).Datasource(source())
	if !instant {
		return target.Range()
	}
	if p.kind == cells {
		target = target.Format(prometheus.PromQueryFormatTable)
	}
	return target.Instant()
}

func (p panel) buildLines() cog.Builder[grafana.Panel] {
	const faint, solid = 8, 40
	out := timeseries.NewPanelBuilder().Title(p.title).Description(p.about).Unit(p.unit).Datasource(source()).
		Span(p.width).Height(p.height).FillOpacity(faint).ShowPoints(common.VisibilityModeNever).LineWidth(1).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if p.kind == stacked {
		out = out.FillOpacity(solid).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
	}
	if p.ratio {
		out = out.Min(0).Max(1)
	}
	// What is modelled is dashed, and says so: colour alone tells nothing to many.
	out = out.OverrideByRegexp("/[Mm]odel/", []grafana.DynamicConfigValue{
		{Id: "custom.lineStyle", Value: map[string]any{"fill": "dash", "dash": []int{8, 8}}},
	})
	for _, name := range p.bands {
		out = out.OverrideByName(name+highEnd, append(quiet(), grafana.DynamicConfigValue{Id: "custom.fillBelowTo", Value: name + lowEnd})).
			OverrideByName(name+lowEnd, quiet())
	}
	for i := range p.queries {
		out = out.WithTarget(p.target(i, false))
	}
	for _, l := range p.links {
		out = out.DataLinks([]cog.Builder[grafana.DashboardLink]{grafana.NewDashboardLinkBuilder(l.title).Url(l.url)})
	}
	return out
}

// quiet is how ends of intervals look.
func quiet() []grafana.DynamicConfigValue {
	const opacity = 15
	return []grafana.DynamicConfigValue{
		{Id: "custom.lineWidth", Value: 0}, {Id: "custom.fillOpacity", Value: opacity},
		{Id: "custom.hideFrom", Value: map[string]any{"legend": true, "tooltip": false, "viz": false}},
	}
}

func (p panel) buildNumber() cog.Builder[grafana.Panel] {
	out := stat.NewPanelBuilder().Title(p.title).Description(p.about).Unit(p.unit).Datasource(source()).
		Span(p.width).Height(p.height).ColorMode(common.BigValueColorModeNone).GraphMode(common.BigValueGraphModeNone).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).NoValue("not known")
	if len(p.queries) > 1 {
		out = out.TextMode(common.BigValueTextModeValueAndName)
	}
	for i := range p.queries {
		out = out.WithTarget(p.target(i, true))
	}
	return out
}

func (p panel) buildCells() cog.Builder[grafana.Panel] {
	out := table.NewPanelBuilder().Title(p.title).Description(p.about).Unit(p.unit).Datasource(source()).
		Span(p.width).Height(p.height).NoValue("none")
	for i := range p.queries {
		out = out.WithTarget(p.target(i, true))
	}
	if len(p.queries) > 1 {
		out = out.WithTransformation(grafana.DataTransformerConfig{Id: "merge", Options: map[string]any{}})
	}
	names := map[string]any{}
	for i, q := range p.queries {
		name := "Value"
		if len(p.queries) > 1 {
			name = fmt.Sprintf("Value #%c", 'A'+i)
		}
		names[name] = q.legend
	}
	out = out.WithTransformation(grafana.DataTransformerConfig{
		Id: "organize", Options: map[string]any{"excludeByName": map[string]bool{"Time": true}, "renameByName": names},
	})
	for _, l := range p.links {
		out = out.DataLinks([]cog.Builder[grafana.DashboardLink]{grafana.NewDashboardLinkBuilder(l.title).Url(l.url)})
	}
	return out
}

// bounded are the queries of an estimate and the ends of its interval, of metrics
// PREFIX_UNIT, PREFIX_low_UNIT and PREFIX_high_UNIT. expr has %s for the metric.
func bounded(prefix, unit, expr, legend string) []query {
	metric := func(end string) string { return fmt.Sprintf(expr, prefix+end+"_"+unit) }
	return []query{{metric(""), legend}, {metric("_low"), legend + lowEnd}, {metric("_high"), legend + highEnd}}
}

// perLever are names of lines that are one a lever.
func perLever(suffix string) (names []string) {
	for _, lever := range []string{"TrafficShare", "Affinity", "Slice", "Buffering", "Shaping"} {
		names = append(names, lever+suffix)
	}
	return names
}
