// Command sbom writes the bill of materials of a Go program, as CycloneDX JSON, from what
// the Go toolchain wrote into the program itself: it tells what was linked, wherever it
// was built, and needs no network.
//
//	go run ./hack/sbom PROGRAM FILE
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("name one program that go build made, and the file to write")
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return fmt.Errorf("read what is linked into %s: %w", args[0], err)
	}
	text, err := json.MarshalIndent(bill(info), "", "  ")
	if err != nil {
		return fmt.Errorf("encode the bill of %s: %w", args[0], err)
	}
	if err := os.MkdirAll(filepath.Dir(args[1]), 0o755); err != nil {
		return err
	}
	return os.WriteFile(args[1], append(text, '\n'), 0o644)
}

// document is the part of CycloneDX 1.6 that a Go program fills.
type document struct {
	BOMFormat    string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Ref     string `json:"bom-ref"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// bill lists the modules and the standard library that are linked into a program.
func bill(info *debug.BuildInfo) document {
	program := module("application", &info.Main)
	program.Name = path.Base(info.Path)
	parts := []component{{
		Type: "library", Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"),
		PURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	}}
	parts[0].Ref = parts[0].PURL
	for _, linked := range info.Deps {
		if linked.Replace != nil {
			linked = linked.Replace
		}
		parts = append(parts, module("library", linked))
	}
	slices.SortFunc(parts, func(x, y component) int { return strings.Compare(x.Ref, y.Ref) })
	needs := dependency{Ref: program.Ref}
	for _, part := range parts {
		needs.DependsOn = append(needs.DependsOn, part.Ref)
	}
	return document{
		BOMFormat: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: metadata{Component: program}, Components: parts, Dependencies: []dependency{needs},
	}
}

// module is a Go module with its package URL. A program that is built from a working
// folder has no version.
func module(kind string, m *debug.Module) component {
	purl := "pkg:golang/" + m.Path
	version := strings.TrimSuffix(m.Version, "(devel)")
	if version != "" {
		purl += "@" + url.QueryEscape(version)
	}
	return component{Ref: purl, Type: kind, Name: m.Path, Version: version, PURL: purl}
}
