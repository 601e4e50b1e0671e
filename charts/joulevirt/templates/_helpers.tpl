{{- define "joulevirt.labels" -}}
app.kubernetes.io/part-of: joulevirt
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "joulevirt.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The objects of some files, in the release's namespace, with the chart's labels and the given
labels and annotations. Arguments: root, files, labels, annotations, apiVersion and namespace of all. */}}
{{- define "joulevirt.manifests" -}}
{{- $call := . }}
{{- range $path, $_ := .root.Files.Glob .files }}
{{- range $text := regexSplit "(?m)^---$" ($call.root.Files.Get $path) -1 }}
{{- $object := fromYaml ($text | replace "joulevirt-system" $call.root.Release.Namespace) }}
{{- with $object.Error }}{{ fail (printf "%s: %s" $path .) }}{{ end }}
{{- if $object.kind }}
{{- with $call.apiVersion }}{{ $_ := set $object "apiVersion" . }}{{ end }}
{{- $metadata := $object.metadata }}
{{- with $call.namespace }}{{ $_ := set $metadata "namespace" . }}{{ end }}
{{- $own := $metadata.labels | default dict }}
{{- $chart := include "joulevirt.labels" $call.root | fromYaml }}
{{- $_ := set $metadata "labels" (mergeOverwrite (dict) $own ($call.labels | default dict) $chart) }}
{{- with $call.annotations }}
{{- $_ := set $metadata "annotations" (mergeOverwrite (dict) ($metadata.annotations | default dict) .) }}
{{- end }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}
{{- end }}
{{- end }}
