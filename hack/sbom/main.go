// Command sbom writes the bill of materials of a Go program, as CycloneDX JSON, from what
// the Go toolchain wrote into the program itself: it tells what was linked, wherever it
// was built, and needs no network. Files of others that a program embeds are known by their
// bytes, see vendored.go.
//
//	go run ./hack/sbom [--assets=FOLDER] PROGRAM FILE
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
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
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	assets := flags.String("assets", "internal/page/assets/vendor", "Folder of the files of others that programs embed.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return errors.New("name one program that go build made, and the file to write")
	}
	program, file := flags.Arg(0), flags.Arg(1)
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read what is linked into %s: %w", program, err)
	}
	embedded, err := embeddedIn(program, *assets)
	if err != nil {
		return fmt.Errorf("look for what is embedded in %s: %w", program, err)
	}
	text, err := json.MarshalIndent(bill(info, embedded), "", "  ")
	if err != nil {
		return fmt.Errorf("encode the bill of %s: %w", program, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
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
	Ref      string    `json:"bom-ref"`
	Type     string    `json:"type"`
	Name     string    `json:"name"`
	Version  string    `json:"version,omitempty"`
	PURL     string    `json:"purl"`
	Licenses []license `json:"licenses,omitempty"`
}

type license struct {
	License struct {
		ID string `json:"id"` // of SPDX
	} `json:"license"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// bill lists the modules and the standard library that are linked into a program, and what
// it embeds.
func bill(info *debug.BuildInfo, embedded []component) document {
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
	parts = append(parts, embedded...)
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
