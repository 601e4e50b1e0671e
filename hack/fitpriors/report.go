package main

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/joulevirt/joulevirt/internal/power/prior"
)

// The lines between which the design note's figures are.
const (
	reportStart = "<!-- written by go run ./hack/fitpriors -->\n"
	reportEnd   = "<!-- end of what is written -->\n"
)

// splice puts a report where a note has one.
func splice(note, report []byte) ([]byte, error) {
	before, rest, found := bytes.Cut(note, []byte(reportStart))
	if !found {
		return nil, fmt.Errorf("the design note has no line %q", reportStart)
	}
	_, after, found := bytes.Cut(rest, []byte(reportEnd))
	if !found {
		return nil, fmt.Errorf("the design note has no line %q", reportEnd)
	}
	return bytes.Join([][]byte{before, []byte(reportStart), report, []byte(reportEnd), after}, nil), nil
}

// report writes what was fitted and how well as Markdown.
func report(p prior.Priors) []byte {
	var out bytes.Buffer
	out.WriteString("\n### Parameters\n\n| parameter | value | standard deviation | unit | origin |\n|---|---|---|---|---|\n")
	for _, named := range p.Figures() {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", named.Name, short(named.Figure.Value), short(named.Figure.StdDev), named.Figure.Unit, named.Figure.Origin)
	}
	out.WriteString("\n### Fits and checks\n\n| table | quantity | values - parameters | R2 | RMSE | worst |\n|---|---|---|---|---|---|\n")
	for _, fit := range p.Fits {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %.0f %% |\n",
			fit.Table, fit.Quantity, freedom(fit), rSquared(fit), with(short(fit.RMSE), fit.Unit), percent*fit.MaxRelativeError)
	}
	out.WriteString("\n### Points\n\n| table | quantity | at | measured | fitted | error |\n|---|---|---|---|---|---|\n")
	for _, fit := range p.Fits {
		for _, point := range fit.Points {
			fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %+.1f %% |\n",
				fit.Table, fit.Quantity, point.At, short(point.Measured), with(short(point.Fitted), fit.Unit), percent*point.RelativeError)
		}
	}
	out.WriteString("\n")
	for _, fit := range p.Fits {
		if fit.Note != "" {
			fmt.Fprintf(&out, "- %s, %s: %s.\n", fit.Table, fit.Quantity, fit.Note)
		}
	}
	out.WriteString("\n")
	return out.Bytes()
}

// shortDigits are what people read.
const shortDigits = 3

func short(v float64) string {
	return strconv.FormatFloat(toDigits(v, shortDigits), 'g', -1, 64)
}

// with adds a unit to a figure, unless it has none.
func with(figure, unit string) string {
	if unit == "1" {
		return figure
	}
	return figure + " " + unit
}

func freedom(fit prior.Fit) string {
	if fit.Parameters == 0 {
		return "check"
	}
	return fmt.Sprintf("%d - %d", fit.Values, fit.Parameters)
}

func rSquared(fit prior.Fit) string {
	if fit.R2 == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", *fit.R2)
}
