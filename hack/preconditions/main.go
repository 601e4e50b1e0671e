// Command preconditions ends with an error, and says what to do, when this machine
// cannot run the demo or tests:
//
//	preconditions demo|gate|e2e
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/joulevirt/joulevirt/test/env/preconditions"
)

func main() {
	gigabytes := map[string]int{"demo": 20, "gate": 20, "e2e": 60}
	if len(os.Args) != 2 || gigabytes[os.Args[1]] == 0 {
		fmt.Fprintln(os.Stderr, "usage: preconditions demo|gate|e2e")
		os.Exit(2)
	}
	facts, err := preconditions.Read(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
	problems, warnings := preconditions.Check(facts, gigabytes[os.Args[1]])
	for _, sentence := range warnings {
		fmt.Fprintln(os.Stderr, "setup: warning:", sentence)
	}
	for _, sentence := range problems {
		fmt.Fprintln(os.Stderr, "setup:", sentence)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}
