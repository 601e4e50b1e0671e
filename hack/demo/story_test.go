package main

import "testing"

func TestPasted(t *testing.T) {
	got := pasted([]string{"get", "epol", "-o", `jsonpath={range .items[*]}{"\n"}{end}`})
	if want := `get epol -o 'jsonpath={range .items[*]}{"\n"}{end}'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
