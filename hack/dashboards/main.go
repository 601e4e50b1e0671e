// Command dashboards writes what is generated of metrics and dashboards below a folder, by
// default the repository: docs/metrics.md and config/grafana/*.json.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/joulevirt/joulevirt/internal/metrics"
)

func main() {
	root := flag.String("root", ".", "Folder to write below.")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	var page bytes.Buffer
	if err := metrics.WritePage(&page); err != nil {
		return err
	}
	return write(filepath.Join(root, "docs", "metrics.md"), page.Bytes())
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
