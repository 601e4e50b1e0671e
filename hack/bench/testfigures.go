package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
)

// measureByTest returns a benchmark that runs tests or benchmarks of a package by a pattern, which
// log figures as "figure NAME VALUE UNIT". Figures of a name that several log are counts: they are
// added up.
func measureByTest(pkg, test string, args ...string) func(context.Context, environment) ([]figure, error) {
	return func(ctx context.Context, env environment) ([]figure, error) {
		args := append([]string{"test", "-tags=e2e", "-count=1", "-v", "-timeout=2h", "-run=^" + test + "$", "-bench=^" + test + "$", "./" + pkg}, args...)
		cmd := exec.CommandContext(ctx, "go", args...)
		out, err := cmd.CombinedOutput()
		fmt.Fprintf(env.progress, "%s", out)
		if err != nil {
			return nil, fmt.Errorf("%s in %s: %w", test, pkg, err)
		}
		var figures []figure
		for _, line := range regexp.MustCompile(`figure (\w+) (\S+) (.+)`).FindAllStringSubmatch(string(out), -1) {
			value, err := strconv.ParseFloat(line[2], 64)
			if err != nil {
				return nil, err
			}
			if at := slices.IndexFunc(figures, func(f figure) bool { return f.name == line[1] }); at >= 0 {
				figures[at].value += value
			} else {
				figures = append(figures, figure{line[1], value, line[3]})
			}
		}
		return figures, nil
	}
}
