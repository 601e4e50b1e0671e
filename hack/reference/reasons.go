package main

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/joulevirt/joulevirt/internal/cli/reasons"
)

// reasonsPage is the table that kubectl joulevirt explain prints from, by its headings.
func reasonsPage(root fs.FS) (string, error) {
	text, err := fs.ReadFile(root, "internal/cli/reasons/reasons.md")
	if err != nil {
		return "", err
	}
	all, page := reasons.All(), heading("Reasons", "Every word that plans, statuses, conditions and [Events](events.md) give as a reason. `kubectl joulevirt explain` says the same sentences.")
	page = strings.TrimSuffix(page, "\n")
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "## ") {
			page += "\n" + line + "\n" + table("reason", "means", "to do")
		}
		if word, _, found := strings.Cut(strings.TrimPrefix(line, "| "), " | "); found {
			if reason, ok := all[word]; ok {
				page += reasonRow(word, reason)
			}
		}
	}
	return page, nil
}

func reasonRow(word string, reason reasons.Reason) string {
	return row(code(word), reason.Means, reason.Next)
}

// end of a table of some of the reasons in a guide, which begins with a comment that names them.
const end = "<!-- end of reasons -->\n"

// guides returns the pages below docs that have such tables, with the sentences as they are now.
func guides(root fs.FS) (map[string]string, error) {
	pages, all := map[string]string{}, reasons.All()
	begin := regexp.MustCompile(`(?m)^<!-- reasons: ([A-Za-z ]+) -->\n`)
	err := fs.WalkDir(root, "docs", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".md") {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		text, done := string(content), ""
		for {
			at := begin.FindStringSubmatchIndex(text)
			if at == nil {
				break
			}
			_, after, found := strings.Cut(text[at[1]:], end)
			if !found {
				return fmt.Errorf("%s: a table of reasons is without its end: %s", name, strings.TrimSpace(end))
			}
			done += text[:at[1]] + table("reason", "means", "to do")
			for _, word := range strings.Fields(text[at[2]:at[3]]) {
				reason, ok := all[word]
				if !ok {
					return fmt.Errorf("%s: there is no reason %s", name, word)
				}
				done += reasonRow(word, reason)
			}
			done, text = done+end, after
		}
		if done != "" {
			pages[name] = done + text
		}
		return nil
	})
	return pages, err
}
