package verify

import (
	"strings"
	"unicode"
)

// Class is what units have in common that a lever's effect is pooled over: alike enough
// that one says something of the next. Classes are equal if all their fields are.
type Class struct {
	// CPUModel is the processor's name.
	CPUModel string
	// Kernel is the release's first two numbers, such as "6.12", see KernelOf.
	Kernel string
	// Idle names how deeply the CPUs may sleep, such as "C6". Empty: not known.
	Idle string
	// Clocks names what sets the CPUs' clocks and whether they follow the load, see ClocksOf.
	// Empty: not known, which is a class of its own.
	Clocks string
	// Workload is a word for what the VMs do.
	Workload string
}

// String is the class in one line, which no other class has.
func (c Class) String() string {
	text := "cpu=" + escaped(c.CPUModel) + ";kernel=" + escaped(c.Kernel) + ";idle=" + escaped(c.Idle)
	if c.Clocks != "" {
		text += ";clocks=" + escaped(c.Clocks)
	}
	return text + ";workload=" + escaped(c.Workload)
}

// ClocksOf is the word for clocks that a governor sets: "powersave" alone would be two things,
// for with some drivers a CPU that is used more runs faster, and with others it never does.
// Without a governor nothing is known.
func ClocksOf(governor string, followLoad bool) string {
	switch {
	case governor == "":
		return ""
	case followLoad:
		return governor + "/follows"
	}
	return governor + "/fixed"
}

func escaped(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), `;`, `\;`)
}

// KernelOf returns the first two numbers of a kernel's release: those in between fix
// faults, and do not change what a lever does. A release that does not begin with two
// numbers is returned as it is.
func KernelOf(release string) string {
	major, rest, _ := strings.Cut(release, ".")
	minor := rest
	if end := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsDigit(r) }); end >= 0 {
		minor = rest[:end]
	}
	if major == "" || minor == "" || strings.ContainsFunc(major, func(r rune) bool { return !unicode.IsDigit(r) }) {
		return release
	}
	return major + "." + minor
}
