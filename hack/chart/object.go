package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// namespace is where the manifests install, and what the chart replaces by the
// release's.
const namespace = "joulevirt-system"

// object is a Kubernetes object as YAML decodes it.
type object map[string]any

func (o object) kind() string { return text(o["kind"]) }

func (o object) name() string { return text(o.metadata()["name"]) }

// id names an object within one set of manifests.
func (o object) id() string { return o.kind() + "/" + o.name() }

func (o object) metadata() map[string]any { return child(o, "metadata") }

// load renders a kustomization.
func load(root, folder string) ([]object, error) {
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, folder))
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", folder, err)
	}
	var all []object
	for _, resource := range rendered.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", folder, err)
		}
		o := object{}
		if err := yaml.Unmarshal(text, &o); err != nil {
			return nil, fmt.Errorf("render %s: %w", folder, err)
		}
		all = append(all, o)
	}
	return all, nil
}

// loadBeside renders a kustomization and leaves out what another one has too. A folder
// that is not there has nothing.
func loadBeside(root, folder string, base []object) ([]object, error) {
	if _, err := os.Stat(filepath.Join(root, folder)); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	all, err := load(root, folder)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, o := range base {
		known[o.id()] = true
	}
	var more []object
	for _, o := range all {
		if !known[o.id()] {
			more = append(more, o)
		}
	}
	return more, nil
}

// child returns the map below a key, made when it is missing.
func child(of map[string]any, key string) map[string]any {
	below, ok := of[key].(map[string]any)
	if !ok {
		below = map[string]any{}
		of[key] = below
	}
	return below
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

// at returns the map that a path of keys leads to; a list on the way is entered at its
// first item, which is the only container of our pods.
func at(o object, path string) (map[string]any, error) {
	here := map[string]any(o)
	if path == "" {
		return here, nil
	}
	for key := range strings.SplitSeq(path, ".") {
		next := here[key]
		if list, ok := next.([]any); ok && len(list) > 0 {
			next = list[0]
		}
		below, ok := next.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s has no %s", o.id(), path)
		}
		here = below
	}
	return here, nil
}

// replaceStrings calls change for every string below a value, keys left out.
func replaceStrings(value any, change func(string) string) any {
	switch v := value.(type) {
	case string:
		return change(v)
	case map[string]any:
		for key, below := range v {
			v[key] = replaceStrings(below, change)
		}
	case []any:
		for i, below := range v {
			v[i] = replaceStrings(below, change)
		}
	}
	return value
}
