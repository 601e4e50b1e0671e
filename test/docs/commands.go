package docs

import (
	"regexp"
	"slices"
	"strings"
)

// command is a line that a page tells people to run.
type command struct {
	// line is without its comment, on one line.
	line string
	// answer that the page shows. Empty: it shows none.
	answer string
	// inline is true within a sentence.
	inline bool
}

// commandsOf a block: what begins with "$ " where answers are shown, and else each line of a
// block whose first line calls a program. The reference has its examples indented, and what a
// command takes not.
func commandsOf(b block) (commands []command) {
	switch {
	case b.language == "console", b.language == "" && strings.HasPrefix(b.text, "$ "):
		for _, one := range strings.Split("\n"+b.text, "\n$ ")[1:] {
			line, answer, _ := strings.Cut(one, "\n")
			commands = append(commands, command{line: plain(line), answer: answer})
		}
	case b.language == "sh", b.language == "" && callsProgram(b.text), b.language == "text" && strings.HasPrefix(b.text, "  kubectl "):
		for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", " ")) {
			if line = plain(line); line != "" {
				commands = append(commands, command{line: line})
			}
		}
	}
	return commands
}

// commandOf a text within a sentence, if it is one for kubectl with its words.
func commandOf(span string) []command {
	line := plain(span)
	if words := strings.Fields(line); len(words) < 3 || words[0] != "kubectl" {
		return nil
	}
	return []command{{line: line, inline: true}}
}

// plain is a line without its comment and with single spaces.
func plain(line string) string {
	return strings.Join(strings.Fields(regexp.MustCompile(`(^|\s)#( .*)?$`).ReplaceAllString(strings.TrimSpace(line), "")), " ")
}

// callsProgram tells whether a line begins with a program that pages tell people to run.
func callsProgram(line string) bool {
	program, _, _ := strings.Cut(line, " ")
	return slices.Contains([]string{"kubectl", "make", "helm", "docker", "git", "export", "agent", "manager", "virtctl", "systemctl", "rm", "tc", "taskset"}, program)
}
