// Package reasons says in a sentence what each word means that plans and statuses give as a
// reason, and what to do about it.
package reasons

import (
	_ "embed" // for the table
	"strings"
)

// table is a Markdown file, for people read it too.
//
//go:embed reasons.md
var table string

// Reason explains one word.
type Reason struct {
	// Means is a sentence.
	Means string
	// Next is what to do, or that there is nothing to do.
	Next string
}

// Table explains words. The zero value explains none.
type Table map[string]Reason

// All returns the table of all words that this version knows.
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

// Has tells whether a word is in the table.
func (t Table) Has(word string) bool {
	_, found := t[word]
	return found
}

// Of explains a word. One that is not known, as of a newer manager, is explained as such.
func (t Table) Of(word string) Reason {
	if reason, ok := t[word]; ok {
		return reason
	}
	return Reason{
		Means: "This program does not know the reason " + word + ": the cluster's Joulevirt is of another version.",
		Next:  "Upgrade kubectl joulevirt to the version of the manager.",
	}
}
