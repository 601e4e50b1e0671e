package main

import (
	"errors"
	"strings"
	"testing"
)

func TestRerun(t *testing.T) {
	const p = "example.com/p"
	one := test{p, "TestA"}
	run, fail, pass := event{"run", p, "TestA", ""}, event{"fail", p, "TestA", ""}, event{"pass", p, "TestA", ""}
	packageFails, packagePasses := event{"fail", p, "", ""}, event{"pass", p, "", ""}
	failed, passed := []event{run, fail, packageFails}, []event{run, pass, packagePasses}
	var many []event
	for range most + 1 {
		many = append(many, fail)
	}
	type result struct {
		events []event
		err    error
	}
	exit := errors.New("exit status 1")
	for name, c := range map[string]struct {
		events []event
		again  []result
		want   string // in the output
		err    string // in the error; empty: none
	}{
		"passes at once":            {failed, []result{{passed, nil}}, "flaky example.com/p.TestA: passed when run again (1 of 2)\nrerun: 1 passed, 0 failed\n", ""},
		"passes at last":            {failed, []result{{failed, exit}, {passed, nil}}, "(2 of 2)\n", ""},
		"fails":                     {failed, []result{{failed, exit}, {failed, exit}}, "failed example.com/p.TestA\nrerun: 0 passed, 1 failed\n", "1 of 1 tests failed again"},
		"runs no test":              {failed, []result{{[]event{packagePasses}, nil}, {nil, nil}}, "failed example.com/p.TestA\n", "failed again"},
		"skips itself":              {failed, []result{{[]event{run, {"skip", p, "TestA", ""}, packagePasses}, nil}, {nil, nil}}, "", "failed again"},
		"another test passes":       {failed, []result{{[]event{{"pass", p, "TestB", ""}, packagePasses}, nil}, {nil, nil}}, "", "failed again"},
		"passes, the teardown not":  {failed, []result{{[]event{run, pass, packageFails}, exit}, {[]event{run, pass, packageFails}, exit}}, "", "failed again"},
		"of a subtest, the parent":  {append([]event{{"fail", p, "TestA/x", ""}}, failed...), []result{{append([]event{{"pass", p, "TestA/x", ""}}, passed...), nil}}, "rerun: 1 passed, 0 failed\n", ""},
		"set-up of the package":     {[]event{packageFails}, nil, "", "example.com/p: it failed outside of its tests"},
		"a package that panics":     {[]event{run, fail, {"output", p, "TestA", "panic: nil map\n"}, packageFails}, nil, "", "example.com/p: it crashed"},
		"a package that is stopped": {[]event{{"run", p, "TestB", ""}, run, fail, packageFails}, nil, "", "example.com/p: it crashed"},
		"no events":                 {nil, nil, "", "without a failed test"},
		"too many":                  {many, nil, "", "11 tests failed"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			left := c.again
			err := rerun(c.events, func(of test) ([]event, error) {
				if of != one || len(left) == 0 {
					t.Fatalf("%s is run, with %d results left", of, len(left))
				}
				next := left[0]
				left = left[1:]
				return next.events, next.err
			}, &out)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if !strings.Contains(out.String(), c.want) || len(left) > 0 {
				t.Errorf("%d results are left, and it prints\n%s\nwant %s", len(left), out.String(), c.want)
			}
		})
	}
}
