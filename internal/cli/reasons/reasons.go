// Package reasons has a sentence and a remedy for each reason in plans and statuses, and for
// each capability that a node can lack.
package reasons

import (
	_ "embed" // for the table
	"strings"
)

// table is a Markdown file, because people read it too.
//
//go:embed reasons.md
var table string

// Reason explains a reason.
type Reason struct {
	// Means is a sentence.
	Means string
	// Next is what to do, or that there is nothing to do.
	Next string
}

// Table has explanations by reason.
type Table map[string]Reason

// All returns the table of this version.
func All() Table {
	all := Table{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 || !strings.HasPrefix(cells[0], "| ") || cells[0] == "| reason" {
			continue
		}
		word := strings.TrimPrefix(cells[0], "| ")
		all[word] = Reason{Means: cells[1], Next: strings.TrimSuffix(cells[2], " |")}
	}
	return all
}

// Of explains a reason. An unknown one, as of a newer manager, is explained as such.
func (t Table) Of(word string) Reason {
	if reason, ok := t[word]; ok {
		return reason
	}
	return Reason{
		Means: "This program does not know the reason " + word + ": the cluster's Joulevirt is of another version.",
		Next:  "Upgrade kubectl joulevirt to the version of the manager.",
	}
}
