package main

import (
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// marks stand in objects for text of templates until they are YAML: template text
// itself is no YAML.
type marks struct{ texts []string }

// put returns a mark for a text. As a scalar, or a part of one, it is replaced where it
// stands; as a whole line (a key without a value, an item of a list) the text's lines
// take its place, each at its indentation.
func (m *marks) put(text string) string {
	m.texts = append(m.texts, text)
	return fmt.Sprintf("chartmark%dx", len(m.texts)-1)
}

// encode is an object as a part of a template.
func (m *marks) encode(o object) (string, error) {
	encoded, err := yaml.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", o.id(), err)
	}
	// What looks like a template in an object is for others, such as Prometheus.
	escaped := strings.ReplaceAll(string(encoded), "{{", "{{ `{{` }}")
	var out strings.Builder
	for line := range strings.Lines(escaped) {
		out.WriteString(m.resolve(line))
	}
	return out.String(), nil
}

func (m *marks) resolve(line string) string {
	if whole := wholeLine().FindStringSubmatch(line); whole != nil {
		var out strings.Builder
		for part := range strings.Lines(m.texts[number(whole[2])] + "\n") {
			out.WriteString(whole[1] + deeper(part, len(whole[1])))
		}
		return out.String()
	}
	return inside().ReplaceAllStringFunc(line, func(mark string) string {
		return m.texts[number(inside().FindStringSubmatch(mark)[1])]
	})
}

// deeper indents what a template writes by as much as the template is.
func deeper(part string, by int) string {
	return indenting().ReplaceAllStringFunc(part, func(call string) string {
		return fmt.Sprintf("nindent %d", by+number(strings.TrimPrefix(call, "nindent ")))
	})
}

func wholeLine() *regexp.Regexp { return regexp.MustCompile(`^( *)(?:- )?chartmark(\d+)x(?:: "")?\n$`) }

func indenting() *regexp.Regexp { return regexp.MustCompile(`nindent \d+`) }

func inside() *regexp.Regexp { return regexp.MustCompile(`chartmark(\d+)x`) }

// number is what the expressions above matched as digits.
func number(digits string) int {
	n := 0
	for _, digit := range digits {
		n = 10*n + int(digit-'0')
	}
	return n
}
