// Package show turns results of kubectl joulevirt into tables for people and documents for
// programs.
package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"
)

// APIVersion of the documents that the CLI prints. Fields are only added within a version.
const APIVersion = "cli.joulevirt.io/v1alpha1"

// Kind returns the type of a document of the CLI.
func Kind(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: APIVersion, Kind: kind}
}

// Gap is something that could not be read.
type Gap struct {
	// Of names what is missing.
	Of string `json:"of"`
	// Message says why, and what to do.
	Message string `json:"message"`
}

// View is the result of a command. As JSON it is a document.
type View interface {
	// Tables for people, in their order. None has a row if nothing was found.
	Tables() []Table
}

// Table is rows for people.
type Table struct {
	// Heading above the table, if not empty.
	Heading string
	Columns []Column
	Rows    [][]string
}

// Column of a table.
type Column struct {
	Name string
	// Wide columns are shown with -o wide.
	Wide bool
}

// Columns returns columns by name; those that start with "+" are wide.
func Columns(names ...string) []Column {
	out := make([]Column, 0, len(names))
	for _, name := range names {
		plain, wide := strings.CutPrefix(name, "+")
		out = append(out, Column{Name: plain, Wide: wide})
	}
	return out
}

// Tables prints the tables of a view, and returns how many have rows.
func Tables(out io.Writer, view View, wide bool) (int, error) {
	printed := 0
	for _, table := range view.Tables() {
		if len(table.Rows) == 0 {
			continue
		}
		if printed > 0 {
			fmt.Fprintln(out)
		}
		if err := printTable(out, table, wide); err != nil {
			return printed, err
		}
		printed++
	}
	return printed, nil
}

func printTable(out io.Writer, table Table, wide bool) error {
	if table.Heading != "" {
		fmt.Fprintln(out, table.Heading)
	}
	converted := &metav1.Table{}
	for _, column := range table.Columns {
		definition := metav1.TableColumnDefinition{Name: column.Name, Type: "string"}
		if column.Wide {
			definition.Priority = 1
		}
		converted.ColumnDefinitions = append(converted.ColumnDefinitions, definition)
	}
	for _, cells := range table.Rows {
		row := metav1.TableRow{}
		for _, cell := range cells {
			row.Cells = append(row.Cells, cell)
		}
		converted.Rows = append(converted.Rows, row)
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(converted, out)
}

// Document converts a view for the printers of kubectl.
func Document(view View) (*unstructured.Unstructured, error) {
	content, err := json.Marshal(view)
	if err != nil {
		return nil, fmt.Errorf("write a document: %w", err)
	}
	document := &unstructured.Unstructured{}
	if err := json.Unmarshal(content, &document.Object); err != nil {
		return nil, fmt.Errorf("write a document: %w", err)
	}
	return document, nil
}
