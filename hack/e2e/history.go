package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// window is how many runs of a story count, and most how many of them may have failed: 5 %.
const window, most = 20, 1

// writeAttempt appends an attempt as a line.
func writeAttempt(w io.Writer, a attempt) error {
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// readHistory reads all attempts, by story, the oldest first.
func readHistory(file string) (map[string][]attempt, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	past := map[string][]attempt{}
	for d := json.NewDecoder(f); ; {
		var a attempt
		if err := d.Decode(&a); errors.Is(err, io.EOF) {
			return past, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the history %s: %w", file, err)
		}
		past[a.Story] = append(past[a.Story], a)
	}
}

// quarantined is a story whose failures do not fail a run, until a day.
type quarantined struct {
	until time.Time
	cause string
}

// readQuarantine reads lines STORY FROM UNTIL CAUSE, with days as 2006-01-02. An entry whose last day
// has passed no longer counts.
func readQuarantine(file string, stories []story, today time.Time) (map[string]quarantined, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open the quarantine: %w", err)
	}
	defer f.Close()
	listed := map[string]quarantined{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		fail := func(problem string) error { return fmt.Errorf("%s: line %q: %s", file, line, problem) }
		words := strings.SplitN(line, " ", 4)
		if len(words) != 4 {
			return nil, fail("want STORY FROM UNTIL CAUSE")
		}
		if !slices.ContainsFunc(stories, func(s story) bool { return s.String() == words[0] }) {
			return nil, fail("there is no such story")
		}
		from, err := time.Parse(time.DateOnly, words[1])
		until, err2 := time.Parse(time.DateOnly, words[2])
		if err := errors.Join(err, err2); err != nil {
			return nil, fail(err.Error())
		}
		if until.Sub(from) > 14*24*time.Hour {
			return nil, fail("the last day is at most 14 days after the first")
		}
		if today.Before(until.AddDate(0, 0, 1)) {
			listed[words[0]] = quarantined{until, words[3]}
		}
	}
	if bound := (len(stories) + 99) / 100; len(listed) > bound {
		return nil, fmt.Errorf("%s: %d stories, at most 1 %%, which is %d, may be in quarantine: mend one first", file, len(listed), bound)
	}
	return listed, nil
}

// advise says which stories belong in quarantine, and which no longer do.
func advise(past map[string][]attempt, listed map[string]quarantined) []string {
	var lines []string
	for name, all := range past {
		all = all[max(0, len(all)-window):]
		bad := 0
		for _, a := range all {
			if !a.OK {
				bad++
			}
		}
		_, known := listed[name]
		if !known && bad > most {
			lines = append(lines, fmt.Sprintf("quarantine %s: it failed in %d of its last %d runs", name, bad, len(all)))
		}
		if known && bad == 0 && len(all) == window {
			lines = append(lines, fmt.Sprintf("release %s from quarantine: its last %d runs passed", name, window))
		}
	}
	slices.Sort(lines)
	return lines
}
