package debian

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// machine is a fake Debian: what is installed, and what was run.
type machine struct {
	installed []string
	broken    bool // apt-get succeeds without installing
	ran       []string
}

func (m *machine) run(_ context.Context, _ io.Writer, name string, args ...string) ([]byte, error) {
	if name == "dpkg-query" {
		output := "un  removed\nrc  half\n"
		for _, name := range m.installed {
			output += "ii  " + name + "\n"
		}
		return []byte(output), &exec.ExitError{}
	}
	m.ran = append(m.ran, name+" "+strings.Join(args, " "))
	if _, packages, ok := strings.Cut(m.ran[len(m.ran)-1], "recommends "); ok && !m.broken {
		m.installed = append(m.installed, strings.Fields(packages)...)
	}
	return nil, nil
}

func TestEnsure(t *testing.T) {
	const apt = "env DEBIAN_FRONTEND=noninteractive apt-get --quiet "
	tests := map[string]struct {
		machine   machine
		root      bool
		wantRan   []string
		wantError string
	}{
		"all there": {machine: machine{installed: []string{"removed", "half", "qemu"}}},
		"root installs": {
			machine: machine{installed: []string{"qemu"}}, root: true,
			wantRan: []string{apt + "update", apt + "install --yes --no-install-recommends half removed"},
		},
		"others are told": {
			machine:   machine{installed: []string{"half"}},
			wantError: "missing Debian packages: qemu removed: run as root: apt-get install --yes --no-install-recommends qemu removed",
		},
		"apt without effect": {
			machine: machine{broken: true, installed: []string{"half", "removed"}}, root: true,
			wantRan:   []string{apt + "update", apt + "install --yes --no-install-recommends qemu"},
			wantError: "missing still: qemu",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			system := System{Run: test.machine.run, Root: test.root}
			err := system.Ensure(t.Context(), io.Discard, "removed", "qemu", "half")
			if (err == nil) != (test.wantError == "") || err != nil && !strings.Contains(err.Error(), test.wantError) {
				t.Errorf("Ensure = %v, want %q", err, test.wantError)
			}
			if diff := cmp.Diff(test.wantRan, test.machine.ran); diff != "" {
				t.Errorf("commands run (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMissingElsewhere(t *testing.T) {
	system := System{Run: func(context.Context, io.Writer, string, ...string) ([]byte, error) {
		return nil, &exec.Error{Name: "dpkg-query", Err: exec.ErrNotFound}
	}}
	_, err := system.Missing(t.Context(), "qemu")
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "no Debian: install the equivalents of qemu") {
		t.Errorf("Missing = %v", err)
	}
}

func TestHostKnowsItsOwnPackages(t *testing.T) {
	missing, err := Host().Missing(t.Context(), "dpkg", "joulevirt-no-such-package")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"joulevirt-no-such-package"}, missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
}
