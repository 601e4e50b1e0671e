package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	ofTest  = regexp.MustCompile(`^=== (?:RUN|NAME|CONT) +(\S+)$`)
	failed  = regexp.MustCompile(`^ *--- FAIL: (\S+) `)
	message = regexp.MustCompile(`^ +(\w+\.go:\d+: .*)$`)
	crashed = regexp.MustCompile(`^(?:panic|fatal error|exit status)\b.*`)
	digits  = regexp.MustCompile(`\d+`)
)

// judge says from the log of a test and how its process ended whether it passed, and if not, what
// failed first. A process that did not run the test does not pass.
func judge(test, log string, ended error) (ok bool, problem string) {
	passed := regexp.MustCompile(`(?m)^--- PASS: ` + test + ` `).MatchString(log)
	if passed && ended == nil {
		return true, ""
	}
	var now, last, crash string
	var failures []string
	last = "it wrote nothing"
	messages := map[string]string{}
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\n")
		last = cmp.Or(strings.TrimSpace(line), last)
		if match := ofTest.FindStringSubmatch(line); match != nil {
			now = match[1]
		} else if match := failed.FindStringSubmatch(line); match != nil {
			failures = append(failures, match[1])
		} else if match := message.FindStringSubmatch(line); match != nil {
			messages[now] = match[1]
		} else if crash == "" {
			crash = crashed.FindString(line)
		}
	}
	// A test prints its result before those of its parts.
	part := slices.IndexFunc(failures, func(name string) bool { return !slices.ContainsFunc(failures, isPartOf(name)) })
	if part < 0 {
		return false, cmp.Or(crash, fmt.Sprintf("%v: %s", ended, last))
	}
	return false, cmp.Or(crash, strings.TrimPrefix(failures[part], test+"/")+": "+messages[failures[part]])
}

func isPartOf(name string) func(string) bool {
	return func(other string) bool { return strings.HasPrefix(other, name+"/") }
}

// result is what came of a story.
type result struct {
	story    story
	attempts []attempt
}

// passed reports whether the last attempt did.
func (r result) passed() bool { return len(r.attempts) > 0 && r.attempts[len(r.attempts)-1].OK }

// problems returns a line for each attempt that failed.
func (r result) problems(kind string) string {
	var text strings.Builder
	different := map[string]bool{}
	for i, a := range r.attempts {
		if a.OK {
			continue
		}
		different[digits.ReplaceAllString(a.Problem, "N")] = true
		fmt.Fprintf(&text, "%s %s attempt %d: %s (load %.1f) log %s\n", kind, r.story, i+1, cut(a.Problem), a.Load, a.Log)
	}
	if !r.passed() {
		fmt.Fprintf(&text, "%s %s: %d different problems in %d attempts\n", kind, r.story, len(different), len(r.attempts))
	}
	return text.String()
}

// cut bounds what a line quotes.
func cut(text string) string {
	const most = 300
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

func (a attempt) String() string {
	if a.OK {
		return fmt.Sprintf("ok     %s  %.0f s (load %.1f)", a.Story, a.Seconds, a.Load)
	}
	return fmt.Sprintf("failed %s  %.0f s (load %.1f): %s", a.Story, a.Seconds, a.Load, cut(a.Problem))
}

// summarize returns the last lines of a run: the stories that were not ok at once, figures, and the
// sum. ok is false when a story failed that is not in quarantine.
func summarize(results []result, listed map[string]quarantined, took time.Duration) (report string, ok bool) {
	var text strings.Builder
	var fine, flaky, failures, apart int
	for _, r := range results {
		_, known := listed[r.story.String()]
		switch {
		case r.passed() && len(r.attempts) == 1:
			fine++
		case known:
			apart++
			text.WriteString(r.problems("QUARANTINED"))
		case r.passed():
			flaky++
			text.WriteString(r.problems("FLAKY"))
		default:
			failures++
			text.WriteString(r.problems("FAILED"))
		}
	}
	fmt.Fprintf(&text, "figure e2e_min %.1f min\nfigure e2e_failed %d stories\nfigure e2e_flaky_pct %.1f %%\n",
		took.Minutes(), failures, 100*float64(flaky)/float64(len(results)))
	fmt.Fprintf(&text, "E2E %d stories: %d ok, %d flaky, %d failed, %d quarantined, %.0f min\n", len(results), fine, flaky, failures, apart, took.Minutes())
	return text.String(), failures == 0
}
