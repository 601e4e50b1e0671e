package main

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// static are the files of the chart that no manifest has: its metadata, helpers, notes,
// and the Job of a removal.
//
//go:embed all:static
var static embed.FS

const header = "# Written by hack/chart from config/: run make chart.\n"

// generator collects what the manifests say of values and where they go.
type generator struct {
	marks  marks
	values []value
	byID   map[string]object
}

// chart returns the files of the chart by name.
func chart(root string) (map[string][]byte, error) {
	base, err := load(root, "config/default")
	if err != nil {
		return nil, err
	}
	monitored, err := loadBeside(root, "config/prometheus", base)
	if err != nil {
		return nil, err
	}
	dashboards, err := loadBeside(root, "config/grafana", append(base, monitored...))
	if err != nil {
		return nil, err
	}
	openshift, err := loadBeside(root, "config/openshift", base)
	if err != nil {
		return nil, err
	}
	g := &generator{values: values(), byID: map[string]object{}}
	for _, o := range base {
		g.byID[o.id()] = o
	}
	if err := g.placeValues(); err != nil {
		return nil, err
	}
	policy, err := preset(root, "observe")
	if err != nil {
		return nil, err
	}
	files, err := g.templates(base, extras{monitored, dashboards, openshift, policy})
	if err != nil {
		return nil, err
	}
	if err := addStatic(files); err != nil {
		return nil, err
	}
	return files, g.addValues(files)
}

func preset(root, name string) (object, error) {
	text, err := os.ReadFile(filepath.Join(root, "policies", name+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("preset %s: %w", name, err)
	}
	o := object{}
	if err := yaml.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("preset %s: %w", name, err)
	}
	// A hook: its kind is not there yet when the other objects are checked. At the first
	// install only. Helm's own rule for hooks would delete, before it makes it, a policy of
	// that name that is there; this one deletes what failed only, which a policy does not.
	annotations := child(o.metadata(), "annotations")
	annotations["helm.sh/hook"] = "post-install"
	annotations["helm.sh/hook-delete-policy"] = "hook-failed"
	return o, nil
}

// presetIsWanted: a policy of its name that is there is the user's, edited or not, and so is
// its ledger, which goes with it. Where the kind is not there yet, Helm's lookup would fail.
func presetIsWanted(o object) string {
	version, kind := text(o["apiVersion"]), o.kind()
	return fmt.Sprintf(`and (eq .Values.policy.preset %q) (not (and (.Capabilities.APIVersions.Has %q) (lookup %q %q "" %q)))`,
		o.name(), version+"/"+kind, version, kind, o.name())
}

// extras are objects that values ask for.
type extras struct {
	monitored, dashboards, openshift []object
	policy                           object
}

// templates writes each object to the file of its part.
func (g *generator) templates(base []object, more extras) (map[string][]byte, error) {
	parts := map[string]*strings.Builder{}
	write := func(part, condition string, o object) error {
		text, err := g.template(o)
		if err != nil {
			return err
		}
		file := parts[part]
		if file == nil {
			file = &strings.Builder{}
			file.WriteString(header)
			parts[part] = file
		}
		if condition != "" {
			text = "{{- if " + condition + " }}\n---\n" + text + "{{- end }}\n"
		} else {
			text = "---\n" + text
		}
		file.WriteString(text)
		return nil
	}
	for _, o := range base {
		if o.kind() == "Namespace" {
			continue // Helm makes it: a release cannot hold the namespace that it is in
		}
		part, condition := partOf(o)
		if err := write(part, condition, o); err != nil {
			return nil, err
		}
	}
	for _, o := range more.monitored {
		toggle := "serviceMonitor"
		if o.kind() == "PrometheusRule" {
			toggle = "prometheusRule"
		}
		g.labelled(o, toggle)
		if err := write("monitoring", ".Values."+toggle+".enabled", o); err != nil {
			return nil, err
		}
	}
	for _, o := range more.dashboards {
		g.labelled(o, "grafana")
		if err := write("dashboards", ".Values.grafana.enabled", o); err != nil {
			return nil, err
		}
	}
	for _, o := range more.openshift {
		if err := write("openshift", ".Values.openshift.enabled", o); err != nil {
			return nil, err
		}
	}
	if err := write("policy", presetIsWanted(more.policy), more.policy); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for part, file := range parts {
		files["templates/"+part+".yaml"] = []byte(file.String())
	}
	return files, nil
}

// partOf is the file of an object, and the condition under which it is installed.
func partOf(o object) (part, condition string) {
	switch kind := o.kind(); {
	case kind == "CustomResourceDefinition":
		return "crds", ".Values.crds.enabled"
	case strings.HasPrefix(kind, "ValidatingAdmissionPolicy"):
		return "admission", ""
	case strings.HasSuffix(kind, "Role"), strings.HasSuffix(kind, "RoleBinding"), kind == "ServiceAccount":
		return "rbac", ""
	case strings.HasPrefix(o.name(), "joulevirt-agent"):
		return "agent", ""
	default:
		return "manager", ""
	}
}

// template is an object as Helm renders it: with the chart's labels, in the release's
// namespace.
func (g *generator) template(o object) (string, error) {
	if o.kind() == "CustomResourceDefinition" {
		keep := g.marks.put("{{- if .Values.crds.keep }}\nhelm.sh/resource-policy: keep\n{{- end }}")
		child(o.metadata(), "annotations")[keep] = ""
	} else {
		release := g.marks.put("{{ .Release.Namespace }}")
		replaceStrings(map[string]any(o), func(s string) string { return strings.ReplaceAll(s, namespace, release) })
	}
	child(o.metadata(), "labels")[g.marks.put(`{{- include "joulevirt.labels" . | nindent 0 }}`)] = ""
	return g.marks.encode(o)
}

// labelled lets users give objects more labels.
func (g *generator) labelled(o object, values string) {
	mark := g.marks.put("{{- with .Values." + values + ".labels }}\n{{- toYaml . | nindent 0 }}\n{{- end }}")
	child(o.metadata(), "labels")[mark] = ""
}

func addStatic(files map[string][]byte) error {
	return fs.WalkDir(static, "static", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := static.ReadFile(path)
		if err != nil {
			return err
		}
		files[strings.TrimPrefix(path, "static/")] = text
		return nil
	})
}
