//go:build tools

// Package helm pins the Helm with which the tests install the chart.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
