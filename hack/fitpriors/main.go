// Command fitpriors fits the priors of internal/power/prior to the published
// tables in data, and writes them with how well they fit:
//
//	go run ./hack/fitpriors          rewrites the file, and its figures in the design note
//	go run ./hack/fitpriors -check   fails when either is not what it would write
//
// docs/design/energy-priors.md tells what is fitted and why.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/joulevirt/joulevirt/internal/power/prior"
)

func main() {
	root := flag.String("root", ".", "root of the repository")
	check := flag.Bool("check", false, "compare with the files instead of writing them")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "fitpriors:", err)
		os.Exit(1)
	}
}

// The files that are written, from the root of the repository.
const (
	priorsFile = "internal/power/prior/priors.json"
	noteFile   = "docs/design/energy-priors.md"
)

func run(root string, check bool) error {
	folder, err := fs.Sub(embedded, "data")
	if err != nil {
		return err
	}
	priors, err := fit(folder)
	if err != nil {
		return err
	}
	text, err := encode(priors)
	if err != nil {
		return err
	}
	priorsFile, noteFile := filepath.Join(root, priorsFile), filepath.Join(root, noteFile)
	have, err := os.ReadFile(noteFile)
	if err != nil {
		return fmt.Errorf("the design note: %w", err)
	}
	note, err := splice(have, report(priors))
	if err != nil {
		return err
	}
	if check {
		return compareFiles(priorsFile, text, noteFile, note)
	}
	if err := os.WriteFile(priorsFile, text, 0o644); err != nil {
		return fmt.Errorf("file of priors: %w", err)
	}
	if err := os.WriteFile(noteFile, note, 0o644); err != nil {
		return fmt.Errorf("the design note: %w", err)
	}
	return nil
}

// compareFiles says where the files differ from what would be written. The note
// has three digits, which do not depend on the processor.
func compareFiles(priorsFile string, text []byte, noteFile string, note []byte) error {
	have, err := os.ReadFile(priorsFile)
	if err != nil {
		return fmt.Errorf("file of priors: %w", err)
	}
	if err := compare(have, text); err != nil {
		return err
	}
	if have, err = os.ReadFile(noteFile); err != nil {
		return fmt.Errorf("the design note: %w", err)
	}
	if !bytes.Equal(have, note) {
		return errors.New("the design note has other figures; run go run ./hack/fitpriors")
	}
	return nil
}

// schema is the version of the file's form that is written.
const schema = 1

// fit returns the priors that the tables of a folder lead to.
func fit(folder fs.FS) (prior.Priors, error) {
	t, err := readTables(folder)
	if err != nil {
		return prior.Priors{}, err
	}
	samples, err := readCurves(t)
	if err != nil {
		return prior.Priors{}, err
	}
	curves, err := fitCurves(samples)
	if err != nil {
		return prior.Priors{}, err
	}
	xen, err := readXenPower(t.byName[tableXen], samples.kvmWakeUps)
	if err != nil {
		return prior.Priors{}, err
	}
	kvm, err := readKVMPower(t.byName[tableKVMPower], samples)
	if err != nil {
		return prior.Priors{}, err
	}
	node, err := fitNode(xen, kvm)
	if err != nil {
		return prior.Priors{}, err
	}
	effects, err := fitEffects(t, &node)
	if err != nil {
		return prior.Priors{}, err
	}
	checks, err := checkCurves(t, &curves, &node)
	if err != nil {
		return prior.Priors{}, err
	}
	priors := prior.Priors{
		Schema: schema, Tables: t.digest,
		Curves: curves.curves, Study: node.study,
		Buffering: effects.buffering, Affinity: effects.affinity, SRIOV: effects.sriov,
	}
	for _, fits := range [][]prior.Fit{curves.fits, node.fits, effects.fits, checks} {
		priors.Fits = append(priors.Fits, fits...)
	}
	return priors, nil
}

// encode writes the file of priors: equal tables lead to equal bytes.
func encode(priors prior.Priors) ([]byte, error) {
	text, err := json.MarshalIndent(priors, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("file of priors: %w", err)
	}
	text = append(text, '\n')
	if _, err := prior.Parse(text); err != nil {
		return nil, fmt.Errorf("what was fitted is no use: %w", err)
	}
	return text, nil
}
