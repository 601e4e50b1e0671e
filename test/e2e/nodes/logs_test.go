//go:build e2e

package nodes

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/test/env/node"
)

// kubeVirtLogs are those of virt-handler and virt-launcher.
type kubeVirtLogs struct {
	env *node.Environment
	// known are the kinds of lines that were there without the product.
	known     map[string]bool
	installed time.Time
}

// varying are numbers and identities in lines of one kind.
var varying = regexp.MustCompile(`[0-9a-f-]*[0-9][0-9a-f-]*`)

// complaint is an error or a warning, libvirt's in virt-launcher too.
var complaint = regexp.MustCompile(`"level":"(error|warning|fatal)"|\b(panic|error) ?:`)

// causedByUs are lines that the product was seen to cause: libvirt's, about connections that
// were opened at the wrong address or left open, and whatever names the product.
var causedByUs = regexp.MustCompile(`unexpected qemu URI path|End of file while reading data|joulevirt`)

// readKubeVirtLogs reads what there is before the product is installed.
func readKubeVirtLogs(t *testing.T, e *node.Environment) *kubeVirtLogs {
	t.Helper()
	l := &kubeVirtLogs{env: e, known: map[string]bool{}, installed: time.Now()}
	l.lines(t, func(_ string, _ time.Time, line string) { l.known[kind(line)] = true })
	if len(l.known) == 0 {
		t.Fatal("KubeVirt's pods have no logs")
	}
	return l
}

// nothingNew fails the test for each error or warning of a kind that was not there without
// the product. It is of use until something else happens to KubeVirt.
func (l *kubeVirtLogs) nothingNew(t *testing.T) {
	t.Helper()
	l.lines(t, func(file string, at time.Time, line string) {
		if !at.Before(l.installed) && complaint.MatchString(line) && !l.known[kind(line)] {
			t.Errorf("%s has a complaint that is new with the product: %s", file, line)
		}
	})
}

// check fails the test for each line that the product caused.
func (l *kubeVirtLogs) check(t *testing.T) {
	t.Helper()
	read, migrated := 0, map[string]bool{}
	l.lines(t, func(file string, at time.Time, line string) {
		if at.Before(l.installed) {
			return
		}
		read++
		migrated[file] = migrated[file] || strings.Contains(line, "Initiating live migration")
		// Now and then the source's libvirt reads on from the target's, which has closed.
		if migrated[file] && strings.Contains(line, "End of file while reading data") {
			return
		}
		if causedByUs.MatchString(line) {
			t.Errorf("%s: %s", file, line)
		}
	})
	t.Logf("%d lines of KubeVirt's logs since the product is installed", read)
}

// lines calls f for each line of the pods that are still there.
func (l *kubeVirtLogs) lines(t *testing.T, f func(file string, at time.Time, line string)) {
	t.Helper()
	for _, n := range l.env.Nodes() {
		err := n.EachLogLine("*_virt-*", func(container string, at time.Time, line string) { f(n.Name+" "+container, at, line) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// kind is what lines about different VMs and times have in common.
func kind(line string) string {
	var entry struct{ Component, Level, Msg string }
	if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg != "" {
		line = entry.Component + " " + entry.Level + " " + entry.Msg
	}
	return varying.ReplaceAllString(line, "N")
}
