// Command dashboards writes what is generated of metrics and dashboards below a folder, by
// default the repository: docs/metrics.md and config/grafana/*.json.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/joulevirt/joulevirt/internal/dashboard"
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
	if err := write(filepath.Join(root, "docs", "metrics.md"), page.Bytes()); err != nil {
		return err
	}
	boards, err := dashboard.All()
	if err != nil {
		return err
	}
	for _, board := range boards {
		if err := write(filepath.Join(root, "config", "grafana", board.Name+".json"), board.JSON); err != nil {
			return err
		}
	}
	return nil
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
