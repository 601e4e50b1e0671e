// Command chart writes the Helm chart from the manifests, so that both install
// the same:
//
//	go run ./hack/chart [--out=charts/joulevirt]
//
// Objects are rendered from config/default, config/prometheus and config/grafana;
// values.go lists what of them users may set, and where it goes. The chart's
// default values are what the manifests say.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "Folder of the module.")
	out := flag.String("out", "charts/joulevirt", "Folder of the chart, whose files are written anew.")
	flag.Parse()
	if err := run(*root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(root, out string) error {
	files, err := chart(root)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("remove the old chart: %w", err)
	}
	for name, text := range files {
		path := filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
