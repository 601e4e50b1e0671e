// Command sbom writes the bill of materials of a Go program, as CycloneDX JSON, from the
// module list that the Go toolchain links into the program:
//
//	go run ./hack/sbom [--embeds=hack/sbom/vendored.json] PROGRAM FILE
//
// cyclonedx-gomod would do, but Go's checksum database does not know it.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// component is a part of the program, or the program itself.
type component struct {
	Ref     string `json:"bom-ref"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl"`
}

func main() {
	embeds := flag.String("embeds", "", "List of the npm packages of which the program embeds files.")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom [--embeds=FILE] PROGRAM FILE")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), flag.Arg(1), *embeds); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(program, file, embeds string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read the module list of %s: %w", program, err)
	}
	parts := []component{newComponent("library", "golang", "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		parts = append(parts, newComponent("library", "golang", module.Path, module.Version))
	}
	if embeds != "" {
		text, err := os.ReadFile(embeds)
		if err != nil {
			return err
		}
		var packages []struct{ Name, Version string }
		if err := json.Unmarshal(text, &packages); err != nil {
			return fmt.Errorf("%s: %w", embeds, err)
		}
		for _, p := range packages {
			parts = append(parts, newComponent("library", "npm", p.Name, p.Version))
		}
	}
	main := newComponent("application", "golang", info.Main.Path, strings.TrimSuffix(info.Main.Version, "(devel)"))
	main.Name = path.Base(info.Path)
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": map[string]any{"component": main}, "components": parts,
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func newComponent(kind, ecosystem, name, version string) component {
	purl := "pkg:" + ecosystem + "/" + name
	if version != "" {
		purl += "@" + url.QueryEscape(version)
	}
	return component{Ref: purl, Type: kind, Name: name, Version: version, PURL: purl}
}
