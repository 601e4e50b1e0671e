package main

import (
	"fmt"
	"strings"
)

// placeValues puts all values where they go, and learns their defaults there.
func (g *generator) placeValues() error {
	for i := range g.values {
		v := &g.values[i]
		for _, p := range v.places {
			if err := g.place(v, p); err != nil {
				return fmt.Errorf("value %s: %w", v.path, err)
			}
		}
		if v.standard == nil && v.schema["type"] == "array" {
			v.standard = []any{}
		}
	}
	for program, id := range map[string]string{"manager": deployment, "agent": daemonSet} {
		if err := g.placeImage(program, id); err != nil {
			return err
		}
		if err := g.placePodMetadata(program, id); err != nil {
			return err
		}
	}
	return nil
}

func (g *generator) place(v *value, p place) error {
	o, known := g.byID[p.object]
	if !known {
		return fmt.Errorf("the manifests have no %s", p.object)
	}
	here, err := at(o, p.path)
	if err != nil {
		return err
	}
	name := ".Values." + v.path
	switch p.form {
	case scalar, block:
		standing, there := here[p.key]
		if !there {
			return fmt.Errorf("%s has no %s at %s", o.id(), p.key, p.path)
		}
		v.standard = standing
		if p.form == scalar {
			here[p.key] = g.marks.put("{{ " + name + " }}")
			return nil
		}
		delete(here, p.key)
		here[g.marks.put(p.key+":\n  {{- toYaml "+name+" | nindent 2 }}")] = ""
	case added:
		here[g.marks.put("{{- with "+name+" }}\n"+p.key+":\n  {{- toYaml . | nindent 2 }}\n{{- end }}")] = ""
	default:
		args, _ := here["args"].([]any)
		here["args"] = append(args, g.marks.put(argumentText(name, p)))
	}
	return nil
}

// argumentText is the template of one or more arguments, each an item of a list.
func argumentText(name string, p place) string {
	switch p.form {
	case refusal:
		return "{{- if not " + name + " }}\n- --" + p.flag + "=false\n{{- end }}"
	case arguments:
		return "{{- range " + name + " }}\n- {{ . | quote }}\n{{- end }}"
	default:
		return "{{- with " + name + " }}\n- {{ printf \"--" + p.flag + "=%v\" . | quote }}\n{{- end }}"
	}
}

// placeImage splits the image of the manifests into the default of repository, and what
// the chart makes of tag and digest.
func (g *generator) placeImage(program, id string) error {
	here, err := at(g.byID[id], container)
	if err != nil {
		return err
	}
	repository, _, tagged := strings.Cut(text(here["image"]), ":")
	if !tagged {
		return fmt.Errorf("the image of %s has no tag: %q", id, here["image"])
	}
	here["image"] = g.marks.put(`{{ include "joulevirt.image" (dict "image" .Values.` + program + `.image "chart" .Chart) }}`)
	for i := range g.values {
		if g.values[i].path == program+".image.repository" {
			g.values[i].standard = repository
		}
	}
	return nil
}

func (g *generator) placePodMetadata(program, id string) error {
	metadata, err := at(g.byID[id], "spec.template.metadata")
	if err != nil {
		return err
	}
	for key, value := range map[string]string{"labels": "podLabels", "annotations": "podAnnotations"} {
		mark := g.marks.put("{{- with .Values." + program + "." + value + " }}\n{{- toYaml . | nindent 0 }}\n{{- end }}")
		child(metadata, key)[mark] = ""
	}
	return nil
}
