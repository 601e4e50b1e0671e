package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// table is one published table: comments, a line of column names, and rows.
type table struct {
	name    string
	columns []string
	rows    []row
}

// row is one line of a table.
type row struct {
	table *table
	line  int
	cells []string
}

// parseTable reads a table. An error names the table and the line.
func parseTable(name string, text io.Reader) (*table, error) {
	reader := csv.NewReader(text)
	reader.Comment = '#'
	columns, err := reader.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("table %s: no line of column names", name)
	case err != nil:
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	t := &table{name: name, columns: columns}
	for i, column := range columns {
		if column == "" || slices.Contains(columns[:i], column) {
			line, _ := reader.FieldPos(i)
			return nil, fmt.Errorf("table %s: line %d: column %d is called %q, which is empty or taken", name, line, i+1, column)
		}
	}
	for {
		cells, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // it says the line
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
		line, _ := reader.FieldPos(0)
		t.rows = append(t.rows, row{table: t, line: line, cells: cells})
	}
	if len(t.rows) == 0 {
		return nil, fmt.Errorf("table %s: no rows", name)
	}
	return t, nil
}

// find returns the one row whose columns have certain words, as in
// "nic=virtio".
func (t *table) find(where ...string) (row, error) {
	var found []row
	for _, r := range t.rows {
		matches := true
		for _, one := range where {
			column, word, _ := strings.Cut(one, "=")
			text, err := r.text(column)
			if err != nil {
				return row{}, err
			}
			matches = matches && text == word
		}
		if matches {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		return row{}, fmt.Errorf("table %s: %d rows with %s, want 1", t.name, len(found), strings.Join(where, ", "))
	}
	return found[0], nil
}

func (r row) text(column string) (string, error) {
	at := slices.Index(r.table.columns, column)
	if at < 0 {
		return "", fmt.Errorf("table %s: no column %s", r.table.name, column)
	}
	return r.cells[at], nil
}

// texts reads several cells of a row.
func (r row) texts(columns ...string) ([]string, error) {
	words := make([]string, len(columns))
	for i, column := range columns {
		var err error
		if words[i], err = r.text(column); err != nil {
			return nil, err
		}
	}
	return words, nil
}

// number reads a cell that must hold a finite number that is not negative.
func (r row) number(column string) (float64, error) {
	value, given, err := r.optional(column)
	if err == nil && !given {
		err = fmt.Errorf("table %s: line %d: %s is empty", r.table.name, r.line, column)
	}
	return value, err
}

// optional is number, where a cell may be empty.
func (r row) optional(column string) (value float64, given bool, err error) {
	text, err := r.text(column)
	if err != nil || text == "" {
		return 0, false, err
	}
	value, err = strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return 0, false, fmt.Errorf("table %s: line %d: %s is %q: not a finite number from 0 on", r.table.name, r.line, column, text)
	}
	return value, true, nil
}

// numbers reads several cells of a row.
func (r row) numbers(columns ...string) ([]float64, error) {
	values := make([]float64, len(columns))
	for i, column := range columns {
		var err error
		if values[i], err = r.number(column); err != nil {
			return nil, err
		}
	}
	return values, nil
}
