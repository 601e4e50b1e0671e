package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// measureByTest returns a benchmark that runs one test or benchmark of a package, which logs
// figures as "figure NAME VALUE UNIT".
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
			figures = append(figures, figure{line[1], value, line[3]})
		}
		return figures, nil
	}
}
