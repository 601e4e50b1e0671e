// Package dashboard makes the Grafana dashboards of config/grafana. See
// docs/design/dashboards.md.
package dashboard

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Board is a dashboard as Grafana reads it.
type Board struct {
	// Name of its file, without an ending.
	Name string
	JSON []byte
}

// All returns the dashboards.
func All() ([]Board, error) {
	var boards []Board
	for _, b := range []board{fleetBoard(), nodeBoard(), groupBoard(), proofBoard()} {
		built, err := b.build()
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", b.name, err)
		}
		text, err := json.MarshalIndent(built, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", b.name, err)
		}
		boards = append(boards, Board{Name: b.name, JSON: append(text, '\n')})
	}
	return boards, nil
}

// board describes a dashboard.
type board struct {
	name, title, about string
	variables          []variable
	rows               []row
}

// row of panels, from left to right and then below.
type row struct {
	title  string
	panels []panel
}

// variable that people choose, from the values of a label.
type variable struct {
	name, label string
	// of is where the values are from.
	of string
	// multi is true where several, and all, may be chosen.
	multi bool
}

func policies() variable {
	return variable{name: "policy", label: "EnergyPolicy", of: `label_values(joulevirt_policy_info, policy)`, multi: true}
}

// tag is what all boards have, and by which they link to one another.
const tag = "joulevirt"

func (b board) build() (grafana.Dashboard, error) {
	out := grafana.NewDashboardBuilder("Joulevirt / "+b.title).
		Uid("joulevirt-"+b.name).Description(b.about).Tags([]string{tag}).
		Time("now-24h", "now").Refresh("1m").Timezone("browser").Tooltip(grafana.DashboardCursorSyncCrosshair).Readonly().
		Link(grafana.NewDashboardLinkBuilder("Joulevirt").
			Type(grafana.DashboardLinkTypeDashboards).Tags([]string{tag}).Icon("external link").KeepTime(true).IncludeVars(true)).
		WithVariable(grafana.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"))
	for _, v := range b.variables {
		out = out.WithVariable(v.build())
	}
	const rowIDs = 1000 // apart from those of panels
	var id uint32
	for i, r := range b.rows {
		out = out.WithRow(grafana.NewRowBuilder(r.title).Id(rowIDs + uint32(i)))
		for _, p := range r.panels {
			id++
			out = out.WithPanel(identified{p.build(), id})
		}
	}
	return out.Build()
}

func (v variable) build() cog.Builder[grafana.VariableModel] {
	out := grafana.NewQueryVariableBuilder(v.name).Label(v.label).Datasource(source()).
		Query(grafana.StringOrMap{Map: map[string]any{"query": v.of, "refId": "StandardVariableQuery"}}).
		Refresh(grafana.VariableRefreshOnTimeRangeChanged).Sort(grafana.VariableSortNaturalAsc)
	if v.multi {
		all := "$__all"
		label := "All"
		out = out.Multi(true).IncludeAll(true).AllValue(".*").
			Current(grafana.VariableOption{Text: grafana.StringOrArrayOfString{String: &label}, Value: grafana.StringOrArrayOfString{String: &all}})
	}
	return out
}

// source is the data source that was chosen.
func source() common.DataSourceRef {
	kind, uid := "prometheus", "${datasource}"
	return common.DataSourceRef{Type: &kind, Uid: &uid}
}

// identified is a panel with a number, by which links to it stay the same.
type identified struct {
	cog.Builder[grafana.Panel]
	id uint32
}

// Build implements cog.Builder.
func (i identified) Build() (grafana.Panel, error) {
	p, err := i.Builder.Build()
	p.Id = &i.id
	return p, err
}
