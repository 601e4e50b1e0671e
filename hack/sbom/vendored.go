package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// vendoredList says which packages of npm the page's files are from, for hack/page-vendor.sh
// as well, which gets them.
//
//go:embed vendored.json
var vendoredList []byte

// vendored is a package of npm of which some files are embedded as they are.
type vendored struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	License string   `json:"license"` // by SPDX
	SHA512  string   `json:"sha512"`  // of the package, as npm has it
	Files   []string `json:"files"`
}

func vendoredPackages() ([]vendored, error) {
	var all []vendored
	if err := json.Unmarshal(vendoredList, &all); err != nil {
		return nil, fmt.Errorf("vendored.json: %w", err)
	}
	return all, nil
}

// embeddedIn lists the packages of which a program has a file. Go embeds files as they are:
// their bytes are found in those programs alone that have them.
func embeddedIn(program, assets string) ([]component, error) {
	all, err := vendoredPackages()
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var found []component
	for _, p := range all {
		for _, name := range p.Files {
			file, err := os.ReadFile(filepath.Join(assets, name))
			if err != nil {
				return nil, err
			}
			if bytes.Contains(content, file) {
				found = append(found, p.component())
				break
			}
		}
	}
	return found, nil
}

func (p vendored) component() component {
	purl := "pkg:npm/" + p.Name + "@" + p.Version
	var of license
	of.License.ID = p.License
	return component{Ref: purl, Type: "library", Name: p.Name, Version: p.Version, PURL: purl, Licenses: []license{of}}
}
