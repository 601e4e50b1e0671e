// Command reference writes docs/reference, and the tables of reasons in the guides, from what
// the code says: the kinds as the API server has them, the constants of conditions, reasons
// and enums, and the sentences that kubectl joulevirt explain prints. Its test compares the
// two, so nothing of it is edited by hand. The page of kubectl joulevirt is written by the
// test of that program.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	pages, err := Pages(os.DirFS("."))
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	for name, text := range pages {
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		if err == nil {
			err = os.WriteFile(name, []byte(text), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
	}
}
